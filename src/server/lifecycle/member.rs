//! What a server of an ensemble has besides a data directory: others.
//!
//! *Owns* what is known at the start of who this server is, and the tasks that keep up its links.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::config::{Config, ServerSpec};
use crate::replica::SendImage;
use crate::replica::founding::{Identified, Introduction};
use crate::server::credentials;
use crate::server::disk::data_dir;
use crate::server::error::StartError;
use crate::server::mailbox::Message;
use crate::server::metrics::Figures;
use crate::server::peer::security::Security;
use crate::server::peer::{Founder, Life, Peers, Transfers, connect_all, send_images};
use crate::server::stop::Stop;
use crate::supervision::{Task, TaskSet};

/// What a server of an ensemble has besides.
pub(super) struct Member {
    /// The other servers.
    pub peers: Arc<Peers>,
    /// Whether it knows what it is.
    pub state: State,
}

/// Whether a server knows what it is.
pub(super) enum State {
    /// It asks the others.
    Founding(Founder),
    /// It has been a server on its own, unless what its disk says has made it a member since: it is to
    /// read that, and then to ask the others.
    Standalone(Founder, Identified),
    /// It has data.
    Founded(Identified),
}

/// Images to be sent, until somebody sends them.
pub(super) type Orders = mpsc::UnboundedReceiver<SendImage>;

impl Member {
    /// The other servers and who this one is, once that is known.
    pub(super) fn founded(self) -> Option<(Arc<Peers>, Identified)> {
        match self.state {
            State::Founded(identity) => Some((self.peers, identity)),
            State::Founding(_) | State::Standalone(..) => None,
        }
    }

    /// Looks whether there is data. No other server is told anything yet.
    ///
    /// # Errors
    /// The data directory is refused, or the system gives no random numbers.
    pub(super) fn of(
        config: &Config,
        own: &ServerSpec,
        is_in_memory: bool,
        messages: mpsc::Sender<Message>,
        figures: Arc<Figures>,
    ) -> Result<(Self, Orders), StartError> {
        let certificates = credentials::of_peers(&config.peer_tls)?;
        let known = if is_in_memory { None } else { data_dir::peek(config)? };
        let (state, introduction) = match known {
            Some(identity) if identity.is_standalone() => {
                let life = identity.alone_after.map_or(Life::Standalone, Life::Alone);
                let founder = Founder::new(own.id, config, life)?;
                let introduction = founder.introduction();
                (State::Standalone(founder, identity.identified()), introduction)
            }
            Some(identity) => {
                let identity = identity.identified();
                (State::Founded(identity.clone()), Introduction::Founded(identity))
            }
            None => {
                let has_lost = !is_in_memory
                    && (data_dir::was_set_aside(config)? || !data_dir::is_new(config)?);
                let life = if has_lost { Life::Lost } else { Life::New };
                let founder = Founder::new(own.id, config, life)?;
                let introduction = founder.introduction();
                (State::Founding(founder), introduction)
            }
        };
        let servers = config.servers.clone();
        let (transfers, images) = Transfers::new();
        let peers = Peers::new(own.id, servers, introduction, messages, transfers, figures)
            .secured_by(Security::open(config, certificates)?);
        Ok((Self { peers: Arc::new(peers), state }, images))
    }

    /// Connects to the other servers until the end is asked for.
    pub(super) fn begin(&self, orders: Orders, stop: &Arc<Stop>, tasks: &mut TaskSet<()>) {
        let send = send_images(Arc::clone(&self.peers), orders);
        tasks.spawn(Task::Images, Arc::clone(stop).before(send));
        let connect = connect_all(Arc::clone(&self.peers));
        tasks.spawn(Task::Links, Arc::clone(stop).before(connect));
    }
}
