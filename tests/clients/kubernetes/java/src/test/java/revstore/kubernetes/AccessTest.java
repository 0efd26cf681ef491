package revstore.kubernetes;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static revstore.kubernetes.Server.NAMESPACE;

import io.fabric8.kubernetes.api.model.ServiceAccountBuilder;
import io.fabric8.kubernetes.api.model.authentication.TokenRequest;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.ConfigBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import org.junit.jupiter.api.Test;

/** Tokens of service accounts over HTTPS, and what they may do. */
class AccessTest {
    @Test
    void tokensOfServiceAccounts() throws Exception {
        try (Server server = new Server("--authorization-mode=RBAC"); KubernetesClient admin = server.client()) {
            assertEquals("36", admin.getKubernetesVersion().getMinor());
            var account = new ServiceAccountBuilder()
                    .withNewMetadata().withName("robot").withNamespace(NAMESPACE).endMetadata().build();
            var accounts = admin.serviceAccounts().inNamespace(NAMESPACE);
            accounts.resource(account).create();
            TokenRequest request = accounts.withName("robot").tokenRequest();
            assertTrue(request.getStatus().getToken().contains("."));

            // What a pod has: the address, the authority, and the token.
            Config known = server.config();
            Config config = new ConfigBuilder(Config.empty())
                    .withMasterUrl(known.getMasterUrl())
                    .withCaCertData(known.getCaCertData())
                    .withOauthToken(request.getStatus().getToken())
                    .build();
            try (KubernetesClient robot = new KubernetesClientBuilder().withConfig(config).build()) {
                KubernetesClientException error = assertThrows(KubernetesClientException.class,
                        () -> robot.configMaps().inNamespace(NAMESPACE).list());
                assertEquals(403, error.getCode());
                assertTrue(error.getMessage().contains("system:serviceaccount:default:robot"), error.getMessage());
            }
        }
    }
}
