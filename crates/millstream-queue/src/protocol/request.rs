//! The requests of clients. Everything is borrowed from the input.

/// One complete request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(
    missing_docs,
    reason = "the line above each variant is the command with its words"
)]
pub enum Request<'a> {
    /// `set KEY FLAGS EXPIRY BYTES [noreply]` and its block.
    Set(Set<'a>),
    /// `get KEY...`, `gets KEY...`.
    Get(Get<'a>),
    /// `delete QUEUE [0] [noreply]`.
    Delete { queue: &'a [u8], noreply: bool },
    /// `flush QUEUE`.
    Flush { queue: &'a [u8] },
    /// `flush_all [0] [noreply]`.
    FlushAll { noreply: bool },
    /// `flush_expired QUEUE`.
    FlushExpired { queue: &'a [u8] },
    /// `flush_all_expired`.
    FlushAllExpired,
    /// `stats [QUEUE]`.
    Stats { queue: Option<&'a [u8]> },
    /// `dump_stats [QUEUE...]`.
    DumpStats { queues: Tokens<'a> },
    /// `version`.
    Version,
    /// `verbosity LEVEL [noreply]`.
    Verbosity { noreply: bool },
    /// `quit`.
    Quit,
    /// `status [UP|READONLY|QUIESCENT]`.
    Status { to: Option<&'a [u8]> },
    /// `reload`.
    Reload,
    /// `shutdown`.
    Shutdown,
    /// `monitor QUEUE SECONDS [MAX]`.
    Monitor {
        queue: &'a [u8],
        seconds: u64,
        items_max: Option<u64>,
    },
    /// `confirm QUEUE N`.
    Confirm { queue: &'a [u8], count: u64 },
    /// `confirm QUEUE id=ID...`; each of the words is an [`item_id`](super::item_id).
    ConfirmIds { queue: &'a [u8], ids: Tokens<'a> },
    /// `touch KEY SECONDS [noreply]`, `touch QUEUE ID SECONDS [noreply]`.
    Touch(Touch<'a>),
    /// `redrive FROM TO [MAX]`.
    Redrive {
        from: &'a [u8],
        to: &'a [u8],
        items_max: Option<u64>,
    },
    /// `mn`.
    MetaNoop,
}

/// A `set` with its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set<'a> {
    /// Queue and options.
    pub key: &'a [u8],
    /// Stored, and returned with the item.
    pub flags: u32,
    /// As sent: 0 never, negative at once, small relative seconds, large epoch seconds.
    pub expiry: i64,
    /// The item.
    pub data: &'a [u8],
    /// The client wants no answer.
    pub noreply: bool,
}

/// A `touch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch<'a> {
    /// The queue, and perhaps the id of an item.
    pub key: &'a [u8],
    /// The id of an item, as a word of its own.
    pub id: Option<u64>,
    /// The time that begins; 0 is that of the queue.
    pub seconds: u64,
    /// The client wants no answer.
    pub noreply: bool,
}

/// A `get` or `gets`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Get<'a> {
    /// At least one key.
    pub keys: Tokens<'a>,
    /// `gets`: the item's id is returned as well.
    pub with_id: bool,
}

/// The words of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.0.iter().position(|&byte| byte != b' ')?;
        let rest = &self.0[start..];
        let end = rest
            .iter()
            .position(|&byte| byte == b' ')
            .unwrap_or(rest.len());
        let (token, rest) = rest.split_at(end);
        self.0 = rest;
        Some(token)
    }
}
