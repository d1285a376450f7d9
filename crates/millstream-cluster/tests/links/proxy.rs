//! A relay of connections that a test cuts, stalls in one direction or both, and lets go on.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_cluster::Address;

/// Relays connections to an address.
pub struct Proxy {
    pub address: Address,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Nothing is passed on from those that connect.
    stalls_up: AtomicBool,
    /// Nothing is passed on to those that connect.
    stalls_down: AtomicBool,
    ends: AtomicBool,
    sockets: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    pub fn to(target: &Address) -> Self {
        let target: SocketAddr = target.to_string().parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().into();
        let shared = Arc::new(Shared::default());
        let relay = Arc::clone(&shared);
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                if relay.ends.load(Ordering::Relaxed) {
                    return;
                }
                // No process listens there yet: the caller tries again.
                let Ok(far) = TcpStream::connect(target) else {
                    continue;
                };
                let both = [near.try_clone().unwrap(), far.try_clone().unwrap()];
                relay.sockets.lock().unwrap().extend(both);
                let up = Arc::clone(&relay);
                let down = Arc::clone(&relay);
                let near_too = near.try_clone().unwrap();
                let far_too = far.try_clone().unwrap();
                std::thread::spawn(move || pass(near, far, || &up.stalls_up, &up));
                std::thread::spawn(move || pass(far_too, near_too, || &down.stalls_down, &down));
            }
        });
        Proxy { address, shared }
    }

    pub fn stall_up(&self) {
        self.shared.stalls_up.store(true, Ordering::Relaxed);
    }

    pub fn stall_down(&self) {
        self.shared.stalls_down.store(true, Ordering::Relaxed);
    }

    pub fn cut(&self) {
        for socket in self.shared.sockets.lock().unwrap().drain(..) {
            let _gone_already = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        self.cut();
        let address: SocketAddr = self.address.to_string().parse().unwrap();
        let _wakes_it = TcpStream::connect(address);
    }
}

fn pass<'a>(
    mut from: TcpStream,
    mut to: TcpStream,
    stalls: impl Fn() -> &'a AtomicBool,
    shared: &Shared,
) {
    let mut buffer = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        while stalls().load(Ordering::Relaxed) {
            if shared.ends.load(Ordering::Relaxed) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _gone_already = to.shutdown(Shutdown::Both);
    let _gone_already = from.shutdown(Shutdown::Both);
}
