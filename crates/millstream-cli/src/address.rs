//! Addresses as a person writes them: `HOST:PORT`, `:PORT` or `PORT`. The default host is 127.0.0.1.

use std::net::{SocketAddr, ToSocketAddrs};

use millstream_queue::address::Address;

/// The host and the port that this text names.
pub(crate) fn parts(text: &str) -> Result<(&str, u16), String> {
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    let port: u16 = port
        .parse()
        .map_err(|_| format!("'{text}' is no address: expected HOST:PORT"))?;
    let host = if host.is_empty() {
        "127.0.0.1"
    } else {
        host.trim_start_matches('[').trim_end_matches(']')
    };
    Ok((host, port))
}

/// The address that this text names.
pub(crate) fn parse(text: &str) -> Result<SocketAddr, String> {
    let (host, port) = parts(text)?;
    let mut addresses = (host, port)
        .to_socket_addrs()
        .map_err(|error| format!("cannot find host '{host}': {error}"))?;
    addresses
        .next()
        .ok_or_else(|| format!("host '{host}' has no address"))
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
