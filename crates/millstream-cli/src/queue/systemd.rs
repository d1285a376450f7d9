//! Notifying systemd of the state of the server: one datagram to the socket named in `NOTIFY_SOCKET` (sd_notify(3)).

use std::os::unix::net::UnixDatagram;

use tracing::warn;

/// Sends the state, if systemd wants it.
pub(super) fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(error) = send(&path, state) {
        warn!("cannot tell systemd \"{state}\": {error}");
    }
}

fn send(path: &std::ffi::OsStr, state: &str) -> std::io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    #[cfg(target_os = "linux")]
    if let Some(name) = path.as_encoded_bytes().strip_prefix(b"@") {
        use std::os::linux::net::SocketAddrExt;
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
        return socket.send_to_addr(state.as_bytes(), &address).map(|_| ());
    }
    socket.send_to(state.as_bytes(), path).map(|_| ())
}
