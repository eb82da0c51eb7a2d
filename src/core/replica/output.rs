//! What the next [`Ready`] will say, collected while inputs are taken.
//!
//! *Owns* messages to other servers, wishes for the disk, audit lines and answers to operators until the shell takes
//! them. *Invariants*: everything leaves once, in the order in which it was added; an append is taken before the
//! consensus is asked for the next one. *Never* holds bytes for clients: each connection keeps its own order.

use super::audit_line::AuditLine;
use super::durable::{Append, Mark};
use super::inspect::Report;
use super::machine::Machine;
use super::messages::{Member, PeerMessage};
use super::migration::ZooKeeperWork;
use super::ready::{Fetch, Outgoing, Ready, SendImage, TurnedAway};
use super::request::ConnId;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::replica) struct Output {
    inspected: Vec<(u64, Report)>,
    audit: Vec<AuditLine>,
    audit_clients: Vec<(i64, String)>,
    append: Option<Append>,
    send: Vec<(u64, PeerMessage)>,
    fetch: Vec<Fetch>,
    images: Vec<SendImage>,
    cut: Vec<u64>,
    turned_away: Vec<TurnedAway>,
    replaced: Option<Box<Machine>>,
}

impl Output {
    /// A message to the server with this raft id.
    pub(in crate::replica) fn send(&mut self, to: u64, message: PeerMessage) {
        self.send.push((to, message));
    }

    /// Messages to servers, by raft id.
    pub(in crate::replica) fn send_all(
        &mut self,
        messages: impl IntoIterator<Item = (u64, PeerMessage)>,
    ) {
        self.send.extend(messages);
    }

    /// The links from this server are to be cut.
    pub(in crate::replica) fn cut(&mut self, peer: u64) {
        self.cut.push(peer);
    }

    /// What the consensus wants from the disk.
    pub(in crate::replica) fn disk(
        &mut self,
        append: Option<Append>,
        fetch: Vec<Fetch>,
        images: Vec<SendImage>,
    ) {
        self.append = append;
        self.fetch.extend(fetch);
        self.images.extend(images);
    }

    /// The append begins with the image of this mark.
    pub(in crate::replica) fn install(&mut self, mark: Mark) {
        if let Some(append) = &mut self.append {
            append.install = Some(mark);
        }
    }

    /// An image took the place of this state.
    pub(in crate::replica) fn replaced(&mut self, machine: Box<Machine>) {
        self.replaced = Some(machine);
    }

    /// A transaction was applied. `client`: where its client is, if that is known here.
    pub(in crate::replica) fn audit(&mut self, line: AuditLine, client: Option<String>) {
        self.audit_clients.extend(client.map(|client| (line.zxid, client)));
        self.audit.push(line);
    }

    /// A client gets no session.
    pub(in crate::replica) fn turned_away(&mut self, client: TurnedAway) {
        self.turned_away.push(client);
    }

    /// An operator's question has this answer.
    pub(in crate::replica) fn inspected(&mut self, token: u64, report: Report) {
        self.inspected.push((token, report));
    }

    /// Everything, together with what connections are sent, their tokens, and who the members are.
    pub(in crate::replica) fn take(
        &mut self,
        (client, tokens): (Vec<Outgoing>, Vec<(ConnId, Vec<u8>)>),
        members: Option<Vec<Member>>,
        zookeeper: ZooKeeperWork,
    ) -> Ready {
        let Self {
            inspected,
            audit,
            audit_clients,
            append,
            send,
            fetch,
            images,
            cut,
            turned_away,
            replaced,
        } = std::mem::take(self);
        Ready {
            append,
            client,
            audit,
            audit_clients,
            inspected,
            send,
            fetch,
            images,
            cut,
            tokens,
            replaced,
            members,
            turned_away,
            zookeeper,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_leaves_once_and_in_its_order() {
        let mut output = Output::default();
        output.send(2, PeerMessage::Ask { question: 1 });
        output.send_all([(3, PeerMessage::Ask { question: 2 })]);
        output.cut(3);
        let ready = output.take(Default::default(), None, ZooKeeperWork::default());
        assert_eq!(ready.send.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(ready.cut, [3]);
        assert!(output.take(Default::default(), None, ZooKeeperWork::default()).is_empty());
    }

    #[test]
    fn an_image_is_installed_by_the_append_that_the_consensus_wants() {
        let mut output = Output::default();
        output.install(Mark { index: 6, ..Mark::default() });
        assert!(
            output.take(Default::default(), None, ZooKeeperWork::default()).is_empty(),
            "without an append there is nothing"
        );
        let append = Append {
            number: 1,
            install: None,
            entries: Vec::new(),
            hard_state: None,
            urgency: super::super::durable::Urgency::High,
        };
        output.disk(Some(append), Vec::new(), Vec::new());
        output.install(Mark { index: 7, ..Mark::default() });
        let append =
            output.take(Default::default(), None, ZooKeeperWork::default()).append.unwrap();
        assert_eq!(append.install.map(|mark| mark.index), Some(7));
    }
}
