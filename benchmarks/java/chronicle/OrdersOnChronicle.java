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
 * ends in Rust, and so is how often they read the clock.
 */
public final class OrdersOnChronicle {
    private static final long SLOWEST_NS = 100_000_000_000L;

    /** Where calls come as fast as they go, one in so many is due at a moment of its own, and its latency taken. */
    private static final int SAMPLE = 16;

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
        private long lastDueNs;
        private long calls;
        private long received;
        private long digest;
        private boolean ended;

        Seen(long measuredFrom) {
            this.measuredFrom = measuredFrom;
        }

        void read(Order order) {
            digest = order.digest(digest);
            received++;
            if (order.sendingTime < measuredFrom) {
                return;
            }
            calls++;
            if (order.sendingTime == lastDueNs) {
                return;
            }
            lastDueNs = order.sendingTime;
            long now = System.nanoTime();
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
                            + "\"p9999_us\":%.3f,\"max_us\":%.3f},\"rate\":%.3f,\"received\":%d,\"digest\":%s}",
                    histogram.getTotalCount(), us(50), us(90), us(99), us(99.9), us(99.99), histogram.getMaxValue() / 1e3,
                    Math.max(calls - 1, 0) / seconds, received, Long.toUnsignedString(digest));
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
    private static String publish(String folder, long from, long until, double rate, boolean tuned) {
        try (ChronicleQueue queue = ChronicleQueue.single(folder)) {
            var appender = queue.createAppender();
            if (tuned) {
                var out = appender.methodWriter(TunedOrders.class);
                var order = new TunedOrder();
                var sent = pace(from, until, rate, (number, due) -> {
                    order.become(number, due);
                    out.newOrderSingle(order);
                });
                out.end();
                return sent.report(order);
            }
            var out = appender.methodWriter(NamedOrders.class);
            var order = new Order();
            var sent = pace(from, until, rate, (number, due) -> {
                order.become(number, due);
                out.newOrderSingle(order);
            });
            out.end();
            return sent.report(order);
        }
    }

    /** How many orders were sent, and when they were due: with these, all of them can be made again behind the run. */
    private static final class Sent {
        private final long from;
        private final double gap;
        private long count;
        private long[] samples = new long[1 << 20];

        Sent(long from, double gap) {
            this.from = from;
            this.gap = gap;
        }

        void sample(long number, long due) {
            int at = (int) (number / SAMPLE);
            if (at == samples.length) {
                samples = java.util.Arrays.copyOf(samples, 2 * at);
            }
            samples[at] = due;
        }

        String report(Order order) {
            long digest = 0;
            for (long number = 0; number < count; number++) {
                order.become(number, gap > 0 ? from + (long) (number * gap) : samples[(int) (number / SAMPLE)]);
                digest = order.digest(digest);
            }
            return String.format(Locale.ROOT, "{\"sent\":%d,\"digest\":%s}", count, Long.toUnsignedString(digest));
        }
    }

    private static Sent pace(long from, long until, double rate, Sender sender) {
        double gap = rate > 0 ? 1e9 / rate : 0;
        var sent = new Sent(from, gap);
        while (System.nanoTime() < from) {
            Thread.onSpinWait();
        }
        long due = 0;
        for (long number = 0; ; number++) {
            if (gap > 0) {
                due = from + (long) (number * gap);
            } else if (number % SAMPLE == 0) {
                due = System.nanoTime();
                sent.sample(number, due);
            }
            if (due >= until) {
                sent.count = number;
                return sent;
            }
            while (gap > 0 && System.nanoTime() < due) {
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
                long from = Long.parseLong(args[2]);
                long until = Long.parseLong(args[3]);
                System.out.println(publish(args[1], from, until, Double.parseDouble(args[4]), args[5].equals("tuned")));
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
