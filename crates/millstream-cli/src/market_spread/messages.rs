//! The messages of Market Spread, as bytes and as values.
//!
//! All numbers are big-endian, symbols are left-padded with spaces, times are `YYYYMMDD-HH:MM:SS.mmm`. A message is the
//! payload of a frame with a length of four bytes in front ([`Framing::U32`](millstream_flow::framing::Framing::U32)).
//!
//! ```text
//! quote  42 bytes: u8 2 | symbol 4 | time 21 | f64 bid | f64 offer
//! order  53 bytes: u8 1 | u8 side | u32 account | id 6 | symbol 4 | f64 quantity | f64 price | time 21
//! result 55 bytes: u8 side | u32 account | id 6 | symbol 4 | f64 quantity | f64 price
//!                  | f64 last bid | f64 last offer | u64 timestamp
//! ```
//!
//! A length or a type byte that is wrong makes a poison message, which is an error. Every other byte is taken as it is.

/// A ticker symbol, left-padded with spaces.
pub type Symbol = [u8; 4];

/// A time as text: `YYYYMMDD-HH:MM:SS.mmm`.
pub type TimeText = [u8; 21];

/// The side of an order that buys.
pub const BUY: u8 = 1;
/// The side of an order that sells.
pub const SELL: u8 = 2;

/// Why bytes are not the message that was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The message has another length.
    #[error("{message} must have {need} bytes, and this message has {length}")]
    WrongLength {
        /// What was expected.
        message: &'static str,
        /// The length of the message.
        length: usize,
        /// The length that it should have.
        need: usize,
    },
    /// The first byte is that of another kind of message.
    #[error("{message} starts with a byte {need}, and this message with {byte}")]
    WrongType {
        /// What was expected.
        message: &'static str,
        /// The first byte of the message.
        byte: u8,
        /// What it should be.
        need: u8,
    },
}

fn sized<'a, const N: usize>(
    message: &'static str,
    bytes: &'a [u8],
) -> Result<&'a [u8; N], DecodeError> {
    let length = bytes.len();
    bytes.try_into().map_err(|_| DecodeError::WrongLength {
        message,
        length,
        need: N,
    })
}

fn typed<'a, const N: usize>(
    message: &'static str,
    bytes: &'a [u8],
    need: u8,
) -> Result<&'a [u8; N], DecodeError> {
    let bytes: &[u8; N] = sized(message, bytes)?;
    if bytes[0] == need {
        Ok(bytes)
    } else {
        Err(DecodeError::WrongType {
            message,
            byte: bytes[0],
            need,
        })
    }
}

/// The field of `WIDTH` bytes at `at`. With constants the bounds are known, and nothing is left of the check.
#[inline(always)]
fn field<const WIDTH: usize, const N: usize>(bytes: &[u8; N], at: usize) -> [u8; WIDTH] {
    let mut field = [0; WIDTH];
    field.copy_from_slice(&bytes[at..at + WIDTH]);
    field
}

fn put<const N: usize>(bytes: &mut [u8; N], at: &mut usize, field: &[u8]) {
    bytes[*at..*at + field.len()].copy_from_slice(field);
    *at += field.len();
}

/// A quote: what is bid and what is asked for a symbol.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quote {
    /// The symbol.
    pub symbol: Symbol,
    /// When it was quoted.
    pub time: TimeText,
    /// The best price that a buyer bids.
    pub bid: f64,
    /// The best price that a seller asks.
    pub offer: f64,
}

impl Quote {
    /// The length of the message.
    pub const LENGTH: usize = 42;
    /// The first byte of the message.
    pub const TYPE: u8 = 2;

    /// The quote in these bytes.
    ///
    /// # Errors
    /// The length or the type byte is not that of a quote.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let bytes: &[u8; Self::LENGTH] = typed("a quote", bytes, Self::TYPE)?;
        Ok(Self {
            symbol: field(bytes, 1),
            time: field(bytes, 5),
            bid: f64::from_be_bytes(field(bytes, 26)),
            offer: f64::from_be_bytes(field(bytes, 34)),
        })
    }

    /// The quote as bytes.
    pub fn encode(&self) -> [u8; Self::LENGTH] {
        let (mut bytes, mut at) = ([0; Self::LENGTH], 0);
        put(&mut bytes, &mut at, &[Self::TYPE]);
        put(&mut bytes, &mut at, &self.symbol);
        put(&mut bytes, &mut at, &self.time);
        put(&mut bytes, &mut at, &self.bid.to_be_bytes());
        put(&mut bytes, &mut at, &self.offer.to_be_bytes());
        bytes
    }
}

/// An order to buy or to sell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Order {
    /// [`BUY`] or [`SELL`].
    pub side: u8,
    /// The account of the order.
    pub account: u32,
    /// The name of the order, alphanumeric.
    pub id: [u8; 6],
    /// The symbol.
    pub symbol: Symbol,
    /// How much.
    pub quantity: f64,
    /// At what price.
    pub price: f64,
    /// When it was placed.
    pub time: TimeText,
}

impl Order {
    /// The length of the message.
    pub const LENGTH: usize = 53;
    /// The first byte of the message.
    pub const TYPE: u8 = 1;

    /// The order in these bytes.
    ///
    /// # Errors
    /// The length or the type byte is not that of an order.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let bytes: &[u8; Self::LENGTH] = typed("an order", bytes, Self::TYPE)?;
        Ok(Self {
            side: bytes[1],
            account: u32::from_be_bytes(field(bytes, 2)),
            id: field(bytes, 6),
            symbol: field(bytes, 12),
            quantity: f64::from_be_bytes(field(bytes, 16)),
            price: f64::from_be_bytes(field(bytes, 24)),
            time: field(bytes, 32),
        })
    }

    /// The order as bytes.
    pub fn encode(&self) -> [u8; Self::LENGTH] {
        let (mut bytes, mut at) = ([0; Self::LENGTH], 0);
        put(&mut bytes, &mut at, &[Self::TYPE, self.side]);
        put(&mut bytes, &mut at, &self.account.to_be_bytes());
        put(&mut bytes, &mut at, &self.id);
        put(&mut bytes, &mut at, &self.symbol);
        put(&mut bytes, &mut at, &self.quantity.to_be_bytes());
        put(&mut bytes, &mut at, &self.price.to_be_bytes());
        put(&mut bytes, &mut at, &self.time);
        bytes
    }
}

/// What is sent out for an order that is rejected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OrderResult {
    /// [`BUY`] or [`SELL`].
    pub side: u8,
    /// The account of the order.
    pub account: u32,
    /// The name of the order.
    pub id: [u8; 6],
    /// The symbol.
    pub symbol: Symbol,
    /// How much was ordered.
    pub quantity: f64,
    /// At what price.
    pub price: f64,
    /// The bid of the symbol's last quote, 0 if there was none.
    pub last_bid: f64,
    /// The offer of the symbol's last quote, 0 if there was none.
    pub last_offer: f64,
    /// When it was rejected, in units of 10 us since the epoch.
    pub timestamp: u64,
}

impl OrderResult {
    /// The length of the message.
    pub const LENGTH: usize = 55;

    /// The result in these bytes. It has no type byte.
    ///
    /// # Errors
    /// The length is not that of a result.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let bytes: &[u8; Self::LENGTH] = sized("a result", bytes)?;
        Ok(Self {
            side: bytes[0],
            account: u32::from_be_bytes(field(bytes, 1)),
            id: field(bytes, 5),
            symbol: field(bytes, 11),
            quantity: f64::from_be_bytes(field(bytes, 15)),
            price: f64::from_be_bytes(field(bytes, 23)),
            last_bid: f64::from_be_bytes(field(bytes, 31)),
            last_offer: f64::from_be_bytes(field(bytes, 39)),
            timestamp: u64::from_be_bytes(field(bytes, 47)),
        })
    }

    /// The result as bytes.
    pub fn encode(&self) -> [u8; Self::LENGTH] {
        let (mut bytes, mut at) = ([0; Self::LENGTH], 0);
        put(&mut bytes, &mut at, &[self.side]);
        put(&mut bytes, &mut at, &self.account.to_be_bytes());
        put(&mut bytes, &mut at, &self.id);
        put(&mut bytes, &mut at, &self.symbol);
        for number in [self.quantity, self.price, self.last_bid, self.last_offer] {
            put(&mut bytes, &mut at, &number.to_be_bytes());
        }
        put(&mut bytes, &mut at, &self.timestamp.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTE: Quote = Quote {
        symbol: *b"  GE",
        time: *b"20260105-09:30:00.001",
        bid: 1.5,
        offer: -2.0,
    };
    const ORDER: Order = Order {
        side: SELL,
        account: 258,
        id: *b"A1B2C3",
        symbol: *b"MSFT",
        quantity: 10.0,
        price: 64.25,
        time: *b"20260105-09:30:00.001",
    };

    fn result() -> OrderResult {
        let Order {
            side,
            account,
            id,
            symbol,
            quantity,
            price,
            ..
        } = ORDER;
        let (last_bid, last_offer) = (64.0, 64.06);
        OrderResult {
            side,
            account,
            id,
            symbol,
            quantity,
            price,
            last_bid,
            last_offer,
            timestamp: 176_000_000_000_000,
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_document() {
        let bytes = [
            &b"\x02  GE20260105-09:30:00.001"[..],
            &1.5f64.to_be_bytes(),
            &(-2.0f64).to_be_bytes(),
        ]
        .concat();
        assert_eq!(QUOTE.encode().to_vec(), bytes);
        let bytes = ORDER.encode();
        assert_eq!(&bytes[..16], b"\x01\x02\x00\x00\x01\x02A1B2C3MSFT");
        assert_eq!(bytes[24..32], 64.25f64.to_be_bytes());
        assert_eq!(&bytes[32..], b"20260105-09:30:00.001");
        let bytes = result().encode();
        assert_eq!(&bytes[..15], b"\x02\x00\x00\x01\x02A1B2C3MSFT");
        assert_eq!(bytes[47..], 176_000_000_000_000u64.to_be_bytes());
    }

    #[test]
    fn what_is_written_is_read_back() {
        assert_eq!(Quote::decode(&QUOTE.encode()), Ok(QUOTE));
        assert_eq!(Order::decode(&ORDER.encode()), Ok(ORDER));
        assert_eq!(OrderResult::decode(&result().encode()), Ok(result()));
    }

    #[test]
    fn a_poison_message_is_told_by_length_and_type() {
        let error = Quote::decode(&ORDER.encode()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a quote must have 42 bytes, and this message has 53"
        );
        let mut bytes = ORDER.encode();
        bytes[0] = 9;
        let error = Order::decode(&bytes).unwrap_err();
        assert_eq!(
            error.to_string(),
            "an order starts with a byte 1, and this message with 9"
        );
        assert!(
            Quote::decode(b"").is_err()
                && Order::decode(b"").is_err()
                && OrderResult::decode(b"").is_err()
        );
    }
}
