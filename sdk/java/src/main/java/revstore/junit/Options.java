package revstore.junit;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/**
 * The options of a server.
 *
 * @param binary the path of the server, or null to search the variable, the archive and PATH
 * @param clock the mode of the clock at the start (system, manual or auto), or null for that of the system
 * @param control whether the server has control
 * @param flags further flags of the server
 * @param startTimeout the time in which the server must be ready
 */
public record Options(Path binary, String clock, boolean control, List<String> flags, Duration startTimeout) {
    /** A server with control whose clock follows the system. */
    public static final Options DEFAULT = new Options(null, null, true, List.of(), Duration.ofSeconds(30));

    /** Returns these options with a path of the server. */
    public Options withBinary(Path path) {
        return new Options(path, clock, control, flags, startTimeout);
    }

    /** Returns these options with a mode of the clock. */
    public Options withClock(String mode) {
        return new Options(binary, mode, control, flags, startTimeout);
    }

    /** Returns these options with further flags. */
    public Options withFlags(String... more) {
        return new Options(binary, clock, control, List.of(more), startTimeout);
    }

    /** Returns these options without control. */
    public Options withoutControl() {
        return new Options(binary, clock, false, flags, startTimeout);
    }

    /** Returns these options with a time in which the server must be ready. */
    public Options withStartTimeout(Duration timeout) {
        return new Options(binary, clock, control, flags, timeout);
    }

    List<String> controlFlags() {
        List<String> flags = new ArrayList<>();
        if (control) {
            flags.add("--control-listen-url=http://127.0.0.1:0");
        }
        if (clock != null) {
            flags.add("--control-clock=" + clock);
        }
        return flags;
    }
}
