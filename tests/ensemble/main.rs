//! Several servers: how they are founded, change their members, and mistrust what a link brings.

mod flapping_links;
mod forged_messages;
mod founding;
mod lifecycle;
mod members;
mod peer_security;
mod ports;
