//! The messages of Market Spread, as bytes and as values.
//!
//! All numbers are big-endian, symbols are left-padded with spaces, times are `YYYYMMDD-HH:MM:SS.mmm`. A message is the
//! payload of a frame with a length of four bytes before it.
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

/// The bytes of a message whose length and type byte are right.
fn message<'a, const N: usize>(
    name: &str,
    kind: u8,
    bytes: &'a [u8],
) -> Result<&'a [u8; N], String> {
    let length = bytes.len();
    let bytes: &[u8; N] = bytes
        .try_into()
        .map_err(|_| format!("{name} must have {N} bytes, and this message has {length}"))?;
    match bytes[0] {
        first if first == kind => Ok(bytes),
        first => Err(format!(
            "{name} starts with a byte {kind}, and this message with {first}"
        )),
    }
}

/// The field of `WIDTH` bytes at `at`. With constants the bounds are known, and nothing is left of the check.
#[inline(always)]
fn field<const WIDTH: usize, const N: usize>(bytes: &[u8; N], at: usize) -> [u8; WIDTH] {
    let mut field = [0; WIDTH];
    field.copy_from_slice(&bytes[at..at + WIDTH]);
    field
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
    /// The quote in these bytes.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let bytes: &[u8; 42] = message("a quote", 2, bytes)?;
        Ok(Self {
            symbol: field(bytes, 1),
            time: field(bytes, 5),
            bid: f64::from_be_bytes(field(bytes, 26)),
            offer: f64::from_be_bytes(field(bytes, 34)),
        })
    }
}

/// An order to buy or to sell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Order {
    /// 1 to buy, 2 to sell.
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
    /// The order in these bytes.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let bytes: &[u8; 53] = message("an order", 1, bytes)?;
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
}

/// What is sent for an order that is rejected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OrderResult {
    /// The order.
    pub order: Order,
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

    /// The result as bytes.
    pub fn encode(&self) -> [u8; Self::LENGTH] {
        let Order {
            side,
            account,
            id,
            symbol,
            quantity,
            price,
            ..
        } = self.order;
        let mut bytes = [0; Self::LENGTH];
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(&[side]);
        put(&account.to_be_bytes());
        put(&id);
        put(&symbol);
        for number in [quantity, price, self.last_bid, self.last_offer] {
            put(&number.to_be_bytes());
        }
        put(&self.timestamp.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub const TIME: &TimeText = b"20260105-09:30:00.001";

    pub const ORDER: Order = Order {
        side: 2,
        account: 258,
        id: *b"A1B2C3",
        symbol: *b"MSFT",
        quantity: 10.0,
        price: 64.25,
        time: *TIME,
    };

    fn numbers<const N: usize>(numbers: [f64; N]) -> Vec<u8> {
        numbers
            .iter()
            .flat_map(|number| number.to_be_bytes())
            .collect()
    }

    /// The bytes of an order with this type byte.
    fn order(kind: u8) -> Vec<u8> {
        let head = [&[kind][..], b"\x02\x00\x00\x01\x02A1B2C3MSFT"].concat();
        [&head, &numbers([10.0, 64.25])[..], TIME].concat()
    }

    #[test]
    fn the_bytes_are_those_of_the_document() {
        let quote = Quote {
            symbol: *b"  GE",
            time: *TIME,
            bid: 1.5,
            offer: -2.0,
        };
        let bytes = [&b"\x02  GE"[..], TIME, &numbers([1.5, -2.0])].concat();
        assert_eq!(Quote::decode(&bytes), Ok(quote));
        assert_eq!(Order::decode(&order(1)), Ok(ORDER));
        let result = OrderResult {
            order: ORDER,
            last_bid: 64.0,
            last_offer: 64.06,
            timestamp: 176_000_000_000_000,
        };
        let bytes = result.encode();
        assert_eq!(&bytes[..15], b"\x02\x00\x00\x01\x02A1B2C3MSFT");
        assert_eq!(bytes[15..47], numbers([10.0, 64.25, 64.0, 64.06]));
        assert_eq!(bytes[47..], 176_000_000_000_000u64.to_be_bytes());
    }

    #[test]
    fn a_poison_message_is_reported_by_length_and_type() {
        assert_eq!(
            Quote::decode(&order(1)).unwrap_err(),
            "a quote must have 42 bytes, and this message has 53"
        );
        assert_eq!(
            Order::decode(&order(9)).unwrap_err(),
            "an order starts with a byte 1, and this message with 9"
        );
        assert!(Quote::decode(b"").is_err() && Order::decode(b"").is_err());
    }
}
