//! Addresses that options name, in the form of [`host_and_port`].

use std::net::{SocketAddr, ToSocketAddrs};

use millstream_observe::host_and_port;
use millstream_queue::address::Address;

/// The address that this text names.
pub(crate) fn parse(text: &str) -> Result<SocketAddr, String> {
    let (host, port) = host_and_port(text)?;
    let mut addresses = (host, port)
        .to_socket_addrs()
        .map_err(|error| format!("cannot find host '{host}': {error}"))?;
    addresses
        .next()
        .ok_or_else(|| format!("host '{host}' has no address"))
}

/// The address of a page, which is bound later.
pub(crate) fn parse_page(text: &str) -> Result<String, String> {
    if Address::unix(text).is_none() {
        host_and_port(text)?;
    }
    Ok(text.to_owned())
}

/// The address of a queue server: as above, or `unix:PATH`.
pub fn parse_server(text: &str) -> Result<Address, String> {
    match Address::unix(text) {
        Some(address) => Ok(address),
        None if text == "unix:" => Err(format!("'{text}' names no path: expected unix:PATH")),
        None => parse(text).map(Address::Tcp),
    }
}

#[cfg(test)]
mod tests {
    use super::{parse, parse_server};

    #[test]
    fn the_host_defaults_to_this_machine() {
        for text in ["7000", ":7000", "127.0.0.1:7000"] {
            assert_eq!(parse(text).unwrap().to_string(), "127.0.0.1:7000");
        }
        assert_eq!(parse("[::1]:7000").unwrap().to_string(), "[::1]:7000");
        for wrong in ["", "host", "127.0.0.1:", "127.0.0.1:70000", ":x"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_server_may_be_behind_a_unix_socket() {
        for text in ["127.0.0.1:7000", "unix:/run/queues.sock", "unix:a:1"] {
            assert_eq!(parse_server(text).unwrap().to_string(), text);
        }
        for wrong in ["unix", "unix:"] {
            assert!(parse_server(wrong).is_err(), "{wrong}");
        }
    }
}
