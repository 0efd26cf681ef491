package revstore.junit;

/** A request of control that the server refused. */
public final class ControlException extends RuntimeException {
    private static final long serialVersionUID = 1;

    private final int code;
    private final String text;

    ControlException(String method, int code, String text) {
        super(method + ": " + text + " (code " + code + ")");
        this.code = code;
        this.text = text;
    }

    /** Returns the code of gRPC, such as 5 for NOT_FOUND. */
    public int code() {
        return code;
    }

    /** Returns the text of the server. */
    public String text() {
        return text;
    }
}
