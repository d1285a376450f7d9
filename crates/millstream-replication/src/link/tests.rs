//! The protocol without sockets, and the authentication of real connections.

mod authentication;
mod protocol;
