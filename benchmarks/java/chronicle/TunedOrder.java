package millstream;

import net.openhft.chronicle.bytes.BytesIn;
import net.openhft.chronicle.bytes.BytesOut;

/** The same order, written by hand: the fields one behind the other, without names. */
public final class TunedOrder extends Order {
    @Override
    public boolean usesSelfDescribingMessage() {
        return false;
    }

    @Override
    public void writeMarshallable(BytesOut<?> out) {
        out.write8bit(senderCompID).write8bit(targetCompID);
        out.writeLong(msgSeqNum).writeLong(sendingTime).writeBoolean(possDupFlag);
        out.write8bit(clOrdID).write8bit(account);
        out.writeByte((byte) settlType).writeInt(settlDate).writeByte((byte) handlInst);
        out.write8bit(execInst).writeDouble(minQty).writeDouble(maxFloor);
        out.write8bit(exDestination).write8bit(symbol);
        out.writeByte((byte) securityIDSource).write8bit(securityID).writeByte((byte) side);
        out.writeLong(transactTime).writeDouble(orderQty).writeByte((byte) ordType);
        out.writeDouble(price).writeDouble(stopPx).write8bit(currency);
        out.writeByte((byte) timeInForce).writeLong(expireTime).writeByte((byte) orderCapacity);
        out.write8bit(text);
    }

    @Override
    public void readMarshallable(BytesIn<?> in) {
        in.read8bit(senderCompID);
        in.read8bit(targetCompID);
        msgSeqNum = in.readLong();
        sendingTime = in.readLong();
        possDupFlag = in.readBoolean();
        in.read8bit(clOrdID);
        in.read8bit(account);
        settlType = (char) in.readByte();
        settlDate = in.readInt();
        handlInst = (char) in.readByte();
        in.read8bit(execInst);
        minQty = in.readDouble();
        maxFloor = in.readDouble();
        in.read8bit(exDestination);
        in.read8bit(symbol);
        securityIDSource = (char) in.readByte();
        in.read8bit(securityID);
        side = (char) in.readByte();
        transactTime = in.readLong();
        orderQty = in.readDouble();
        ordType = (char) in.readByte();
        price = in.readDouble();
        stopPx = in.readDouble();
        in.read8bit(currency);
        timeInForce = (char) in.readByte();
        expireTime = in.readLong();
        orderCapacity = (char) in.readByte();
        in.read8bit(text);
    }
}
