package revstore.kubernetes;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static revstore.kubernetes.Server.LIMIT_SECONDS;
import static revstore.kubernetes.Server.NAMESPACE;

import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.extended.leaderelection.LeaderCallbacks;
import io.fabric8.kubernetes.client.extended.leaderelection.LeaderElectionConfig;
import io.fabric8.kubernetes.client.extended.leaderelection.resourcelock.LeaseLock;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** Two candidates, of which one leads until it gives up, and then the other one. */
class ElectionTest {
    @Test
    void leaderElection() throws Exception {
        try (Server server = new Server(); KubernetesClient client = server.client()) {
            BlockingQueue<String> leading = new LinkedBlockingQueue<>();
            Map<String, CompletableFuture<?>> candidates = new HashMap<>();
            for (String name : List.of("one", "two")) {
                // Long enough that the second candidate leads because the first one has given up.
                LeaderElectionConfig config = new LeaderElectionConfig(
                        new LeaseLock(NAMESPACE, "leader", name),
                        Duration.ofSeconds(2 * LIMIT_SECONDS),
                        Duration.ofSeconds(LIMIT_SECONDS),
                        Duration.ofMillis(50),
                        new LeaderCallbacks(() -> leading.add(name), () -> {}, leader -> {}),
                        true,
                        name);
                candidates.put(name, client.leaderElector().withConfig(config).build().start());
            }
            String first = leading.poll(LIMIT_SECONDS, TimeUnit.SECONDS);
            var lease = client.leases().inNamespace(NAMESPACE).withName("leader");
            assertEquals(first, lease.get().getSpec().getHolderIdentity());
            candidates.remove(first).cancel(true);
            String second = leading.poll(LIMIT_SECONDS, TimeUnit.SECONDS);
            assertNotEquals(first, second);
            candidates.get(second).cancel(true);
        }
    }
}
