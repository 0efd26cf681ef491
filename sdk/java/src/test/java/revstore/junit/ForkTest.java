package revstore.junit;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static revstore.junit.ServerTest.bytes;
import static revstore.junit.ServerTest.done;
import static revstore.junit.ServerTest.get;

import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.RepetitionInfo;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;

/** Parallel tests, each with a fork of the server of the class. */
@ExtendWith(RevstoreExtension.class)
@Execution(ExecutionMode.CONCURRENT)
class ForkTest {
    @BeforeAll
    static void fill(Server server) throws Exception {
        try (var client = server.client()) {
            done(client.getKVClient().put(bytes("fixture"), bytes("shared")));
        }
    }

    @RepeatedTest(50)
    void fiftyTestsHaveAForkEach(RepetitionInfo info, @Forked Server fork) throws Exception {
        String own = Integer.toString(info.getCurrentRepetition());
        try (var client = fork.client()) {
            assertEquals(List.of(), get(client, "own"));
            done(client.getKVClient().put(bytes("own"), bytes(own)));
            assertEquals(List.of("shared"), get(client, "fixture"));
            assertEquals(List.of(own), get(client, "own"));
        }
    }

    @Nested
    class Inner {
        @Test
        void aNestedClassHasTheServerAroundIt(@Forked Server fork) throws Exception {
            try (var client = fork.client()) {
                assertEquals(List.of("shared"), get(client, "fixture"));
            }
        }
    }

    @AfterAll
    static void theParentIsUnchanged(Server server) throws Exception {
        try (var client = server.client()) {
            assertEquals(List.of(), get(client, "own"));
        }
        assertEquals(List.of(), server.control().forks());
    }
}
