package revstore.junit;

import java.math.BigDecimal;
import java.time.Duration;
import java.util.Map;
import java.util.regex.Pattern;

/** Durations as Go writes them. */
final class Durations {
    private static final Pattern PART = Pattern.compile("(\\d+(?:\\.\\d+)?)(ms|us|µs|ns|h|m|s)");
    private static final Map<String, Long> NANOS =
            Map.of("h", 3_600_000_000_000L, "m", 60_000_000_000L, "s", 1_000_000_000L, "ms", 1_000_000L, "us", 1_000L, "µs", 1_000L, "ns", 1L);

    private Durations() {}

    static String toText(Duration duration) {
        return duration.toNanos() + "ns";
    }

    static Duration fromText(String text) {
        Duration sum = Duration.ZERO;
        var parts = PART.matcher(text);
        while (parts.find()) {
            var nanos = new BigDecimal(parts.group(1)).multiply(BigDecimal.valueOf(NANOS.get(parts.group(2))));
            sum = sum.plusNanos(nanos.longValue());
        }
        return sum;
    }
}
