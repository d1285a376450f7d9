package millstream;

import net.openhft.chronicle.wire.SelfDescribingMarshallable;

/** FIX NewOrderSingle, written by Chronicle's own marshaller with the names of its fields. Texts are kept in memory that is used again. */
public class Order extends SelfDescribingMarshallable {
    public StringBuilder senderCompID = new StringBuilder();
    public StringBuilder targetCompID = new StringBuilder();
    public long msgSeqNum;
    public long sendingTime;
    public boolean possDupFlag;
    public StringBuilder clOrdID = new StringBuilder();
    public StringBuilder account = new StringBuilder();
    public char settlType;
    public int settlDate;
    public char handlInst;
    public StringBuilder execInst = new StringBuilder();
    public double minQty;
    public double maxFloor;
    public StringBuilder exDestination = new StringBuilder();
    public StringBuilder symbol = new StringBuilder();
    public char securityIDSource;
    public StringBuilder securityID = new StringBuilder();
    public char side;
    public long transactTime;
    public double orderQty;
    public char ordType;
    public double price;
    public double stopPx;
    public StringBuilder currency = new StringBuilder();
    public char timeInForce;
    public long expireTime;
    public char orderCapacity;
    public StringBuilder text = new StringBuilder();

    private static final long DAY_NS = 86_400_000_000_000L;
    private static final StringBuilder CLIENT = new StringBuilder("CLIENT01");
    private static final StringBuilder EXCHANGE = new StringBuilder("EXCHANGE");
    private static final StringBuilder G = new StringBuilder("G");
    private static final StringBuilder XLON = new StringBuilder("XLON");
    private static final StringBuilder SECURITY = new StringBuilder("GB00BH4HKS39");
    private static final StringBuilder GBP = new StringBuilder("GBP");
    private static final StringBuilder TEXT = new StringBuilder("algo=VWAP;parent=0000042");
    private static final StringBuilder[] SYMBOLS = {
        new StringBuilder("VOD.L"), new StringBuilder("BP.L"), new StringBuilder("HSBA.L"), new StringBuilder("AZN.L"),
        new StringBuilder("SHEL.L"), new StringBuilder("ULVR.L"), new StringBuilder("GSK.L"), new StringBuilder("RIO.L"),
    };

    /** Makes this the order of this number, due at this time: the same one that the publisher in Rust makes. */
    public void become(long number, long due) {
        senderCompID = CLIENT;
        targetCompID = EXCHANGE;
        msgSeqNum = number;
        sendingTime = due;
        possDupFlag = false;
        digits(clOrdID, "20261121-", number, 8);
        digits(account, "ACCT-00", number, 3);
        settlType = '0';
        settlDate = 20_261_123;
        handlInst = '1';
        execInst = G;
        minQty = 100;
        maxFloor = 500;
        exDestination = XLON;
        symbol = SYMBOLS[(int) (number & 7)];
        securityIDSource = '4';
        securityID = SECURITY;
        side = (number & 1) == 0 ? '1' : '2';
        transactTime = due;
        orderQty = 100 + number % 900;
        ordType = '2';
        price = 72 + number % 100 / 100.0;
        stopPx = 0;
        currency = GBP;
        timeInForce = '0';
        expireTime = due + DAY_NS;
        orderCapacity = 'A';
        text = TEXT;
    }

    /** The prefix and the last digits of a number. */
    private static void digits(StringBuilder into, String prefix, long number, int count) {
        if (into.length() == 0) {
            into.append(prefix);
        }
        into.setLength(prefix.length() + count);
        for (int at = prefix.length() + count - 1; at >= prefix.length(); at--) {
            into.setCharAt(at, (char) ('0' + number % 10));
            number /= 10;
        }
    }

    /** A digest of all fields, so that each of them is read. */
    public long digest(long digest) {
        digest = add(digest, senderCompID);
        digest = add(digest, targetCompID);
        digest = add(digest, clOrdID);
        digest = add(digest, account);
        digest = add(digest, execInst);
        digest = add(digest, exDestination);
        digest = add(digest, symbol);
        digest = add(digest, securityID);
        digest = add(digest, currency);
        digest = add(digest, text);
        digest = add(digest, settlType);
        digest = add(digest, handlInst);
        digest = add(digest, securityIDSource);
        digest = add(digest, side);
        digest = add(digest, ordType);
        digest = add(digest, timeInForce);
        digest = add(digest, orderCapacity);
        digest = add(digest, Double.doubleToRawLongBits(minQty));
        digest = add(digest, Double.doubleToRawLongBits(maxFloor));
        digest = add(digest, Double.doubleToRawLongBits(orderQty));
        digest = add(digest, Double.doubleToRawLongBits(price));
        digest = add(digest, Double.doubleToRawLongBits(stopPx));
        digest = add(digest, msgSeqNum);
        digest = add(digest, sendingTime);
        digest = add(digest, transactTime);
        digest = add(digest, expireTime);
        digest = add(digest, settlDate);
        return add(digest, possDupFlag ? 1 : 0);
    }

    private static long add(long digest, long value) {
        return Long.rotateLeft(digest, 5) ^ value;
    }

    private static long add(long digest, CharSequence text) {
        int length = text.length();
        long ends = length == 0 ? 0 : (long) text.charAt(0) << 8 | text.charAt(length - 1);
        return add(digest, ends ^ (long) length << 16);
    }
}
