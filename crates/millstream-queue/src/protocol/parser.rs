//! The parser: finds the first complete request in the input.
//!
//! Its only state is what it must still drop: the block of an item over the limit, or the rest of a line after a
//! block that did not end where it should. Everything else is parsed again, so that a read may end anywhere.

use super::reply;
use super::request::{Get, Request, Set, Tokens, Touch};

/// The limits on what a peer may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest command line without its end, in bytes.
    pub line_bytes: usize,
    /// The largest item, in bytes.
    pub item_bytes: usize,
}

impl Default for Limits {
    /// Lines of 16 KiB, items of 1 MiB.
    fn default() -> Self {
        Limits {
            line_bytes: 16 << 10,
            item_bytes: 1 << 20,
        }
    }
}

/// What is at the front of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Parsed<'a> {
    /// Nothing complete: call again when there are `need` bytes.
    More {
        /// The number of bytes needed, those of this call included.
        need: usize,
    },
    /// A request.
    Request {
        /// The request.
        request: Request<'a>,
        /// The number of bytes used.
        used: usize,
    },
    /// A request that is answered without any queue.
    Answer {
        /// The reply; empty if the client wants none.
        reply: &'static [u8],
        /// The number of bytes used.
        used: usize,
    },
    /// Bytes that were dropped.
    Dropped {
        /// The number of bytes.
        used: usize,
    },
    /// Another protocol: binary memcache, or HTTP sent by a browser. The connection must be closed.
    Foreign,
}

/// What must be dropped before the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drop {
    Nothing,
    /// A block of this many bytes, and its line end.
    Block(u64),
    /// Everything up to and including the next LF.
    Line,
}

/// Parses bytes into requests.
#[derive(Clone, Debug)]
pub struct Parser {
    limits: Limits,
    drop: Drop,
}

/// A command line without its end, and the offset of its block.
struct Line<'a> {
    words: Tokens<'a>,
    used: usize,
    crlf: bool,
}

const WORD_BYTES_MAX: usize = 17;
/// The first byte of each request of memcache's binary protocol.
const BINARY: u8 = 0x80;

impl Parser {
    /// A parser for a new connection.
    pub fn new(limits: Limits) -> Self {
        Parser {
            limits,
            drop: Drop::Nothing,
        }
    }

    /// Parses the front of `input`. The next call must begin with the first byte that this one did not use.
    #[inline]
    pub fn parse<'a>(&mut self, input: &'a [u8]) -> Parsed<'a> {
        if self.drop != Drop::Nothing {
            return self.drop(input);
        }
        let window = &input[..input.len().min(self.limits.line_bytes + 2)];
        let Some(end) =
            memchr::memchr(b'\n', window).filter(|&end| end <= self.limits.line_bytes + 1)
        else {
            return self.no_line(input);
        };
        let crlf = end > 0 && input[end - 1] == b'\r';
        let length = end - usize::from(crlf);
        if length > self.limits.line_bytes {
            return Parsed::Answer {
                reply: reply::LINE_TOO_LONG,
                used: end + 1,
            };
        }
        let line = Line {
            words: Tokens(&input[..length]),
            used: end + 1,
            crlf,
        };
        self.line(line, input)
    }

    /// Sets the limits.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Whether bytes must still be dropped.
    pub fn is_dropping(&self) -> bool {
        self.drop != Drop::Nothing
    }

    #[cold]
    fn drop<'a>(&mut self, input: &'a [u8]) -> Parsed<'a> {
        if input.is_empty() {
            return Parsed::More { need: 1 };
        }
        let used = match self.drop {
            Drop::Nothing => 0,
            Drop::Block(left) => {
                let dropped = left.min(input.len() as u64);
                self.drop = if dropped == left {
                    Drop::Line
                } else {
                    Drop::Block(left - dropped)
                };
                dropped as usize
            }
            Drop::Line => match memchr::memchr(b'\n', input) {
                Some(end) => {
                    self.drop = Drop::Nothing;
                    end + 1
                }
                None => input.len(),
            },
        };
        Parsed::Dropped { used }
    }

    #[cold]
    fn no_line<'a>(&mut self, input: &'a [u8]) -> Parsed<'a> {
        if input.first() == Some(&BINARY) {
            return Parsed::Foreign;
        }
        // Without its end, CR included, a line may be one longer than the limit.
        if input.len() <= self.limits.line_bytes + 1 {
            return Parsed::More {
                need: input.len() + 1,
            };
        }
        self.drop = Drop::Line;
        Parsed::Answer {
            reply: reply::LINE_TOO_LONG,
            used: self.limits.line_bytes + 2,
        }
    }

    #[inline]
    fn line<'a>(&mut self, mut line: Line<'a>, input: &'a [u8]) -> Parsed<'a> {
        let used = line.used;
        let Some(verb) = line.words.next() else {
            return Parsed::Answer {
                reply: reply::ERROR,
                used,
            };
        };
        if verb.first() == Some(&BINARY) {
            return Parsed::Foreign;
        }
        let mut lower = [0; WORD_BYTES_MAX];
        let Some(lower) = lower.get_mut(..verb.len()) else {
            return Parsed::Answer {
                reply: reply::ERROR,
                used,
            };
        };
        lower.copy_from_slice(verb);
        lower.make_ascii_lowercase();
        match &*lower {
            b"get" => get(line.words, used, false),
            b"gets" => get(line.words, used, true),
            b"set" => self.block(line, input, Block::Set),
            b"add" | b"replace" | b"append" | b"prepend" => {
                self.block(line, input, Block::Unstored(reply::NOT_STORED))
            }
            b"cas" => self.block(line, input, Block::Unstored(reply::NOT_FOUND)),
            b"ms" => self.meta_set(line, input),
            b"post" | b"host:" => Parsed::Foreign,
            other => match rest(other, line.words) {
                Ok(request) => Parsed::Request { request, used },
                Err(reply) => Parsed::Answer { reply, used },
            },
        }
    }

    /// A line that is followed by a block: `KEY FLAGS EXPIRY BYTES [noreply]`.
    #[inline]
    fn block<'a>(&mut self, line: Line<'a>, input: &'a [u8], kind: Block) -> Parsed<'a> {
        let mut words = line.words;
        let used = line.used;
        let (Some(key), Some(flags), Some(expiry), Some(bytes)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Parsed::Answer {
                reply: reply::ERROR,
                used,
            };
        };
        let Some(bytes) = number(bytes).filter(|&bytes| bytes <= i32::MAX as u64) else {
            return Parsed::Answer {
                reply: reply::BAD_FORMAT,
                used,
            };
        };
        let bytes = bytes as usize;
        let mut last = words.next();
        if kind == Block::Unstored(reply::NOT_FOUND) {
            last = words.next(); // `cas` has a fifth number
        }
        let noreply = last == Some(b"noreply");
        let quiet = |reply: &'static [u8]| if noreply { &[] } else { reply };
        let well_formed = words.next().is_none() && (last.is_none() || noreply);
        let (Some(flags), Some(expiry), true) = (number(flags), signed(expiry), well_formed) else {
            return self.refuse(used, bytes, reply::BAD_FORMAT);
        };
        let Ok(flags) = u32::try_from(flags) else {
            return self.refuse(used, bytes, reply::BAD_FORMAT);
        };
        if let Block::Unstored(reply) = kind {
            return self.refuse(used, bytes, quiet(reply));
        }
        if bytes > self.limits.item_bytes {
            return self.refuse(used, bytes, quiet(reply::TOO_LARGE));
        }
        let end = used + bytes;
        let line_end: &[u8] = match (input.get(end), input.get(end + 1)) {
            (Some(b'\r'), Some(b'\n')) => b"\r\n",
            // A block typed by hand ends as its line did. After CR LF it must not: that would hide a wrong length.
            (Some(b'\n'), _) if !line.crlf => b"\n",
            (None, _) | (Some(b'\r'), None) => {
                return Parsed::More {
                    need: (end + 1).max(input.len() + 1),
                };
            }
            _ => {
                self.drop = Drop::Line;
                return Parsed::Answer {
                    reply: quiet(reply::BAD_CHUNK),
                    used: end,
                };
            }
        };
        let set = Set {
            key,
            flags,
            expiry,
            data: &input[used..end],
            noreply,
        };
        Parsed::Request {
            request: Request::Set(set),
            used: end + line_end.len(),
        }
    }

    /// `ms KEY BYTES FLAG...`: the block must be dropped, so that it is not parsed as commands.
    #[cold]
    fn meta_set<'a>(&mut self, mut line: Line<'a>, _input: &'a [u8]) -> Parsed<'a> {
        match line.words.nth(1).and_then(number) {
            Some(bytes) if bytes <= i32::MAX as u64 => {
                self.refuse(line.used, bytes as usize, reply::NO_META)
            }
            _ => Parsed::Answer {
                reply: reply::BAD_FORMAT,
                used: line.used,
            },
        }
    }

    /// Answers now, and drops the block when it comes.
    #[cold]
    fn refuse<'a>(&mut self, used: usize, bytes: usize, reply: &'static [u8]) -> Parsed<'a> {
        self.drop = if bytes == 0 {
            Drop::Line
        } else {
            Drop::Block(bytes as u64)
        };
        Parsed::Answer { reply, used }
    }
}

/// What is done with a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    Set,
    /// A command that has no meaning for a queue: the block is dropped, and this is the reply.
    Unstored(&'static [u8]),
}

#[inline]
fn get(keys: Tokens<'_>, used: usize, with_id: bool) -> Parsed<'_> {
    if keys.is_empty() {
        return Parsed::Answer {
            reply: reply::ERROR,
            used,
        };
    }
    Parsed::Request {
        request: Request::Get(Get { keys, with_id }),
        used,
    }
}

impl Tokens<'_> {
    fn is_empty(mut self) -> bool {
        self.next().is_none()
    }
}

/// The remaining commands. The error is the reply.
fn rest<'a>(verb: &[u8], mut words: Tokens<'a>) -> Result<Request<'a>, &'static [u8]> {
    let request = match verb {
        b"delete" => {
            let queue = words.next().ok_or(reply::ERROR)?;
            Request::Delete {
                queue,
                noreply: zero_and_noreply(&mut words)?,
            }
        }
        b"flush_all" => Request::FlushAll {
            noreply: zero_and_noreply(&mut words)?,
        },
        b"flush" => Request::Flush {
            queue: words.next().ok_or(reply::ERROR)?,
        },
        b"flush_expired" => Request::FlushExpired {
            queue: words.next().ok_or(reply::ERROR)?,
        },
        b"flush_all_expired" => Request::FlushAllExpired,
        // As memcached: `stats` without a reply is an error.
        b"stats" if words.clone().next() == Some(b"noreply") => return Err(reply::ERROR),
        b"stats" => Request::Stats {
            queue: words.next(),
        },
        b"dump_stats" => Request::DumpStats {
            queues: std::mem::replace(&mut words, Tokens(b"")),
        },
        b"version" => Request::Version,
        b"verbosity" => {
            let level = words.next().ok_or(reply::ERROR)?;
            let noreply = level == b"noreply" || words.next() == Some(b"noreply");
            Request::Verbosity { noreply }
        }
        b"quit" => Request::Quit,
        b"status" => Request::Status { to: words.next() },
        b"reload" => Request::Reload,
        b"shutdown" => Request::Shutdown,
        b"monitor" => Request::Monitor {
            queue: words.next().ok_or(reply::ERROR)?,
            seconds: words.next().and_then(number).ok_or(reply::BAD_FORMAT)?,
            items_max: optional_number(&mut words)?,
        },
        b"confirm" => return confirm(words),
        b"touch" => return touch(words),
        b"redrive" => Request::Redrive {
            from: words.next().ok_or(reply::ERROR)?,
            to: words.next().ok_or(reply::ERROR)?,
            items_max: optional_number(&mut words)?,
        },
        b"incr" | b"decr" => {
            let _number = words.nth(1).ok_or(reply::ERROR)?;
            return Err(if words.next() == Some(b"noreply") {
                b""
            } else {
                reply::NOT_FOUND
            });
        }
        b"mn" => Request::MetaNoop,
        b"mg" | b"md" | b"ma" | b"me" => return Err(reply::NO_META),
        _ => return Err(reply::ERROR),
    };
    match words.next() {
        None => Ok(request),
        Some(_) => Err(reply::BAD_FORMAT),
    }
}

/// `KEY SECONDS [noreply]`, as memcached has it, or `QUEUE ID SECONDS [noreply]`.
fn touch<'a>(mut words: Tokens<'a>) -> Result<Request<'a>, &'static [u8]> {
    let key = words.next().ok_or(reply::ERROR)?;
    let mut seconds = words.next().ok_or(reply::ERROR)?;
    let mut id = None;
    let mut last = words.next();
    if let Some(word) = last.filter(|&word| word != b"noreply") {
        id = Some(number(seconds).ok_or(reply::BAD_FORMAT)?);
        (seconds, last) = (word, words.next());
    }
    let noreply = last == Some(b"noreply");
    if (last.is_some() && !noreply) || words.next().is_some() {
        return Err(reply::BAD_FORMAT);
    }
    Ok(Request::Touch(Touch {
        key,
        id,
        seconds: number(seconds).ok_or(reply::BAD_FORMAT)?,
        noreply,
    }))
}

/// `N` or `id=ID...` after the name of the queue.
fn confirm<'a>(mut words: Tokens<'a>) -> Result<Request<'a>, &'static [u8]> {
    let queue = words.next().ok_or(reply::ERROR)?;
    let ids = words;
    let first = words.next().ok_or(reply::BAD_FORMAT)?;
    match (number(first), words.next()) {
        (Some(count), None) => Ok(Request::Confirm { queue, count }),
        _ if { ids }.all(|word| item_id(word).is_some()) => Ok(Request::ConfirmIds { queue, ids }),
        _ => Err(reply::BAD_FORMAT),
    }
}

/// The id of an item in a word `id=ID`.
#[must_use]
pub fn item_id(word: &[u8]) -> Option<u64> {
    number(word.strip_prefix(b"id=")?)
}

fn optional_number(words: &mut Tokens<'_>) -> Result<Option<u64>, &'static [u8]> {
    let number = |word| number(word).ok_or(reply::BAD_FORMAT);
    words.next().map(number).transpose()
}

/// `[0] [noreply]`, as old clients send after `delete` and `flush_all`. A delay is not supported.
fn zero_and_noreply(words: &mut Tokens<'_>) -> Result<bool, &'static [u8]> {
    match (words.next(), words.next()) {
        (None | Some(b"0"), None) => Ok(false),
        (Some(b"noreply"), None) | (Some(b"0"), Some(b"noreply")) => Ok(true),
        _ => Err(reply::BAD_FORMAT),
    }
}

/// A number in decimal digits and nothing else.
#[inline]
pub(super) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

#[inline]
fn signed(digits: &[u8]) -> Option<i64> {
    match digits.strip_prefix(b"-") {
        Some(digits) => i64::try_from(number(digits)?).ok().map(|number| -number),
        None => i64::try_from(number(digits)?).ok(),
    }
}
