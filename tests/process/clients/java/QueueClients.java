import java.net.InetSocketAddress;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import net.rubyeye.xmemcached.XMemcachedClient;
import net.rubyeye.xmemcached.XMemcachedClientBuilder;
import net.rubyeye.xmemcached.command.KestrelCommandFactory;
import net.rubyeye.xmemcached.utils.AddrUtil;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.MemcachedClient;

/**
 * The queue server as Java's clients see it: {@code java QueueClients.java spymemcached|xmemcached|kestrel PORT}. Fails at the first
 * answer that is not the expected one. {@code kestrel} is xmemcached with its own commands for Kestrel.
 */
public class QueueClients {
    /** What the clients have in common. */
    interface Client extends AutoCloseable {
        void put(String queue, String item) throws Exception;

        Object get(String key) throws Exception;

        boolean delete(String queue) throws Exception;

        Map<String, String> stats() throws Exception;
    }

    static class Spy implements Client {
        private final MemcachedClient client;

        Spy(int port) throws Exception {
            var options = new ConnectionFactoryBuilder().setOpTimeout(10_000).build();
            client = new MemcachedClient(options, java.util.List.of(new InetSocketAddress("127.0.0.1", port)));
        }

        public void put(String queue, String item) throws Exception {
            same(client.set(queue, 0, item).get(), true);
        }

        public Object get(String key) {
            return client.get(key);
        }

        public boolean delete(String queue) throws Exception {
            return client.delete(queue).get();
        }

        public Map<String, String> stats() {
            return client.getStats().values().iterator().next();
        }

        public void close() {
            client.shutdown(5, TimeUnit.SECONDS);
        }
    }

    static class X implements Client {
        private final XMemcachedClient client;

        X(int port, boolean kestrel) throws Exception {
            var builder = new XMemcachedClientBuilder(AddrUtil.getAddresses("127.0.0.1:" + port));
            builder.setOpTimeout(10_000);
            if (kestrel) {
                builder.setCommandFactory(new KestrelCommandFactory());
            }
            client = (XMemcachedClient) builder.build();
            // It would join gets of several threads into one request.
            client.setOptimizeGet(false);
        }

        public void put(String queue, String item) throws Exception {
            same(client.set(queue, 0, item), true);
        }

        public Object get(String key) throws Exception {
            return client.get(key);
        }

        public boolean delete(String queue) throws Exception {
            return client.delete(queue);
        }

        public Map<String, String> stats() throws Exception {
            return client.getStats().values().iterator().next();
        }

        public void close() throws Exception {
            client.shutdown();
        }
    }

    static Client connect(String kind, int port) throws Exception {
        return kind.equals("spymemcached") ? new Spy(port) : new X(port, kind.equals("kestrel"));
    }

    static void same(Object saw, Object expected) {
        if (!Objects.equals(saw, expected)) {
            throw new AssertionError("expected " + expected + ", saw " + saw);
        }
    }

    static void later(Client client, String queue, String item) {
        CompletableFuture.runAsync(() -> {
            try {
                Thread.sleep(100);
                client.put(queue, item);
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        });
    }

    public static void main(String[] arguments) throws Exception {
        String queue = arguments[0];
        int port = Integer.parseInt(arguments[1]);
        try (Client other = connect(queue, port)) {
            try (Client client = connect(queue, port)) {
                client.put(queue, "first");
                client.put(queue, "second");
                same(client.get(queue), "first");
                same(client.get(queue), "second");
                same(client.get(queue), null);

                later(other, queue, "late");
                same(client.get(queue + "/t=8000"), "late");
                same(client.get(queue + "/t=20"), null);

                client.put(queue, "reliable");
                same(client.get(queue + "/open"), "reliable");
                same(other.get(queue), null);
                same(client.get(queue + "/abort"), null);
                same(client.get(queue + "/open"), "reliable");
            }
            same(other.get(queue + "/t=8000/open"), "reliable");
            same(other.get(queue + "/close/open"), null);

            other.put(queue, "counted");
            same(other.stats().get("queue_" + queue + "_items"), "1");
            same(other.delete(queue), true);
            same(other.get(queue), null);
        }
        // Their threads are no daemons.
        System.exit(0);
    }
}
