package revstore.junit;

/** A server was not found, or did not start. */
public final class StartException extends RuntimeException {
    private static final long serialVersionUID = 1;

    StartException(String message) {
        super(message);
    }

    StartException(String message, Exception cause) {
        super(message, cause);
    }
}
