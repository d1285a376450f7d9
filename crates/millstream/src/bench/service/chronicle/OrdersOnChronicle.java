package millstream;

import java.util.Locale;
import net.openhft.chronicle.bytes.MethodId;
import net.openhft.chronicle.bytes.MethodReader;
import net.openhft.chronicle.queue.ChronicleQueue;
import org.HdrHistogram.Histogram;

/**
 * The two ends of {@code millstream bench service --against}, on Chronicle Queue.
 *
 * <p>They are called {@code publish FOLDER FROM UNTIL RATE named|tuned} and {@code consume FOLDER FROM named|tuned}, with times in ns of
 * {@code CLOCK_MONOTONIC}, which is what {@link System#nanoTime} reads on Linux. Orders, schedule, digest and report are those of the two
 * ends in Rust.
 */
public final class OrdersOnChronicle {
    private static final long SLOWEST_NS = 100_000_000_000L;

    /** What the publisher calls: methods and fields by name. */
    public interface NamedOrders {
        void newOrderSingle(Order order);

        void end();
    }

    /** The same with numbers for the methods and fields written by hand. */
    public interface TunedOrders {
        @MethodId(1)
        void newOrderSingle(TunedOrder order);

        @MethodId(2)
        void end();
    }

    /** What the consumer has seen. */
    private static final class Seen {
        private final long measuredFrom;
        private final Histogram histogram = new Histogram(1, SLOWEST_NS, 3);
        private long firstNs;
        private long lastNs;
        private long digest;
        private boolean ended;

        Seen(long measuredFrom) {
            this.measuredFrom = measuredFrom;
        }

        void read(Order order) {
            digest = order.digest(digest);
            long now = System.nanoTime();
            if (order.sendingTime < measuredFrom) {
                return;
            }
            if (firstNs == 0) {
                firstNs = now;
            }
            lastNs = now;
            histogram.recordValue(Math.min(Math.max(now - order.sendingTime, 0), SLOWEST_NS));
        }

        String report() {
            double seconds = Math.max((lastNs - firstNs) / 1e9, 1e-9);
            return String.format(
                    Locale.ROOT,
                    "{\"latency\":{\"count\":%d,\"p50_us\":%.3f,\"p90_us\":%.3f,\"p99_us\":%.3f,\"p999_us\":%.3f,"
                            + "\"p9999_us\":%.3f,\"max_us\":%.3f},\"rate\":%.3f,\"digest\":%s}",
                    histogram.getTotalCount(), us(50), us(90), us(99), us(99.9), us(99.99), histogram.getMaxValue() / 1e3,
                    Math.max(histogram.getTotalCount() - 1, 0) / seconds, Long.toUnsignedString(digest));
        }

        private double us(double percentile) {
            return histogram.getTotalCount() == 0 ? 0 : histogram.getValueAtPercentile(percentile) / 1e3;
        }
    }

    /** Takes calls by name. */
    public static final class NamedConsumer implements NamedOrders {
        private final Seen seen;

        NamedConsumer(Seen seen) {
            this.seen = seen;
        }

        @Override
        public void newOrderSingle(Order order) {
            seen.read(order);
        }

        @Override
        public void end() {
            seen.ended = true;
        }
    }

    /** Takes calls by number. */
    public static final class TunedConsumer implements TunedOrders {
        private final Seen seen;

        TunedConsumer(Seen seen) {
            this.seen = seen;
        }

        @Override
        public void newOrderSingle(TunedOrder order) {
            seen.read(order);
        }

        @Override
        public void end() {
            seen.ended = true;
        }
    }

    /** Sends the order of a number. */
    private interface Sender {
        void send(long number, long due);
    }

    /** Publishes on schedule, whatever the consumer does; with rate 0 as many as go. */
    private static void publish(String folder, long from, long until, double rate, boolean tuned) {
        try (ChronicleQueue queue = ChronicleQueue.single(folder)) {
            var appender = queue.createAppender();
            if (tuned) {
                var out = appender.methodWriter(TunedOrders.class);
                var order = new TunedOrder();
                pace(from, until, rate, (number, due) -> {
                    order.become(number, due);
                    out.newOrderSingle(order);
                });
                out.end();
            } else {
                var out = appender.methodWriter(NamedOrders.class);
                var order = new Order();
                pace(from, until, rate, (number, due) -> {
                    order.become(number, due);
                    out.newOrderSingle(order);
                });
                out.end();
            }
        }
    }

    private static void pace(long from, long until, double rate, Sender sender) {
        double gap = rate > 0 ? 1e9 / rate : 0;
        while (System.nanoTime() < from) {
            Thread.onSpinWait();
        }
        for (long number = 0; ; number++) {
            long due = gap > 0 ? from + (long) (number * gap) : System.nanoTime();
            if (due >= until) {
                return;
            }
            while (System.nanoTime() < due) {
                Thread.onSpinWait();
            }
            sender.send(number, due);
        }
    }

    /** Takes orders until the publisher has ended. */
    private static void consume(String folder, long measuredFrom, boolean tuned) {
        var seen = new Seen(measuredFrom);
        try (ChronicleQueue queue = ChronicleQueue.single(folder)) {
            Object consumer = tuned ? new TunedConsumer(seen) : new NamedConsumer(seen);
            MethodReader reader = queue.createTailer().methodReader(consumer);
            while (!seen.ended) {
                if (!reader.readOne()) {
                    Thread.onSpinWait();
                }
            }
        }
        System.out.println(seen.report());
    }

    public static void main(String[] args) {
        switch (args.length == 0 ? "" : args[0]) {
            case "publish" -> {
                publish(args[1], Long.parseLong(args[2]), Long.parseLong(args[3]), Double.parseDouble(args[4]), args[5].equals("tuned"));
                System.out.println("null");
            }
            case "consume" -> consume(args[1], Long.parseLong(args[2]), args[3].equals("tuned"));
            default -> {
                System.err.println("usage: publish FOLDER FROM UNTIL RATE named|tuned | consume FOLDER FROM named|tuned");
                System.exit(2);
            }
        }
    }

    private OrdersOnChronicle() {}
}
