//! The protocol without sockets, and the authentication of real connections.

mod admission;
mod authentication;
mod protocol;
