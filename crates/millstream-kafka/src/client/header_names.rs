//! The headers of a message, also where the name of one is not UTF-8.
//!
//! Kafka does not check names, and the client library panics for such a header: its name and value are not available
//! without unsafe code. The panic is caught here, and the panic hook does not report it; the header is left out.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use rdkafka::message::{Header, Headers};

thread_local! {
    /// Whether this thread reads a header, whose panic is caught.
    static IS_READING: Cell<bool> = const { Cell::new(false) };
}

/// Calls `each` for each header that can be read, and returns how many cannot.
pub(super) fn each_readable(
    headers: &impl Headers,
    each: &mut dyn FnMut(&str, Option<&[u8]>),
) -> usize {
    let mut unread = 0;
    for index in 0..headers.count() {
        match read(headers, index) {
            Some(header) => each(header.key, header.value),
            None => unread += 1,
        }
    }
    unread
}

fn read(headers: &impl Headers, index: usize) -> Option<Header<'_, &[u8]>> {
    silence();
    IS_READING.set(true);
    let read = catch_unwind(AssertUnwindSafe(|| headers.try_get(index)));
    IS_READING.set(false);
    read.ok().flatten()
}

/// Makes the panic hook silent for panics that are caught here.
fn silence() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_READING.get() {
                report(panic);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use rdkafka::message::OwnedHeaders;

    use super::*;

    /// Headers of which the second one has a name that the library does not read.
    struct Hostile(OwnedHeaders);

    impl Headers for Hostile {
        fn count(&self) -> usize {
            self.0.count()
        }
        fn try_get(&self, index: usize) -> Option<Header<'_, &[u8]>> {
            assert!(index != 1, "not UTF-8");
            self.0.try_get(index)
        }
    }

    #[test]
    fn a_header_that_cannot_be_read_is_left_out_and_counted() {
        let mut headers = OwnedHeaders::new();
        for key in ["a", "b", "c"] {
            let value = Some(key.as_bytes());
            headers = headers.insert(Header { key, value });
        }
        let mut found = Vec::new();
        let unread = each_readable(&Hostile(headers), &mut |name, value| {
            found.push((name.to_owned(), value.map(<[u8]>::to_vec)));
        });
        assert_eq!(unread, 1);
        let some = |name: &str| (name.to_owned(), Some(name.as_bytes().to_vec()));
        assert_eq!(found, [some("a"), some("c")]);
    }
}
