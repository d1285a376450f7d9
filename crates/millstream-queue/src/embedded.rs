//! Queues in process: the same directory, queues and promises as a server's, without a socket.
//!
//! All threads of a process share a directory: a second open returns the same queues. Another process, such as a
//! server, is refused. A thread of this module does the timed work: delays and waits end, items expire, queues are
//! synced.
//!
//! The invariant: an item is durable as its queue's policy says when [`Queue::put`] returns. An open item is either
//! confirmed by [`OpenItem::close`] or requeued, however its reader ends.
//!
//! ```
//! use std::time::Duration;
//! use millstream_queue::embedded::{Options, Queues};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! let queues = Queues::open(folder.path(), &Options::default())?;
//! let orders = queues.queue("orders")?;
//! orders.put(b"first")?;
//! orders.put(b"second")?;
//!
//! if let Some(item) = orders.open(Duration::from_secs(5))? {
//!     assert_eq!(item.body(), b"first"); // ours, until it is closed; dropped, it takes its place again
//!     item.close()?;
//! }
//! assert_eq!(orders.get(Duration::ZERO)?.as_deref(), Some(&b"second"[..]));
//! # Ok::<(), millstream_queue::QueueError>(())
//! ```

mod directory;
mod get;
mod lend;
mod open_directory;
mod open_item;
mod options;
mod put;
mod queue;
mod registry;

pub use self::directory::Queues;
pub use self::get::Waiting;
pub use self::open_item::OpenItem;
pub use self::options::Options;
pub use self::put::PutOptions;
pub use self::queue::Queue;
