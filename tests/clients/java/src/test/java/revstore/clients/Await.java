package revstore.clients;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.etcd.jetcd.ByteSequence;
import io.grpc.Status;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;

/** Bounded waits, and conversion of texts to bytes. */
final class Await {
    /** The time limit of a wait, after which the test fails. It is long enough for busy machines. */
    static final long LIMIT_SECONDS = 60;

    private Await() {}

    static <T> T done(CompletableFuture<T> future) throws Exception {
        return future.get(LIMIT_SECONDS, TimeUnit.SECONDS);
    }

    /** Checks that a call fails with a code and a text. */
    static void fails(Status.Code code, String text, CompletableFuture<?> future) {
        var failure = assertThrows(ExecutionException.class, () -> done(future));
        var status = Status.fromThrowable(failure);
        assertEquals(text, status.getDescription());
        assertEquals(code, status.getCode());
    }

    static ByteSequence bytes(String text) {
        return ByteSequence.from(text, StandardCharsets.UTF_8);
    }
}
