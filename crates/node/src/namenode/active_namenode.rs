//! Which NameNode of an HA group is believed to be active.
//!
//! Two NameNodes may both claim it for a moment (split brain). The one with the newest transaction
//! is right; a claim that is not newer than the last one believed is refused.

/// What a heartbeat's claim led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimChange<K> {
    /// Nothing new.
    Same,
    /// It is the active one now; before it was `from`.
    Took {
        /// The one believed before.
        from: Option<K>,
    },
    /// It was the active one and says that it no longer is.
    Resigned,
    /// It claims to be active, but another one with this transaction is believed.
    Refused {
        /// Newest transaction of an active NameNode so far.
        known_txid: u64,
    },
}

/// The active NameNode of one pool; `K` names a NameNode.
#[derive(Clone, Debug)]
pub(super) struct ActiveNameNode<K> {
    active: Option<K>,
    /// Transaction of the last claim believed.
    txid: Option<u64>,
}

impl<K: Copy + PartialEq> ActiveNameNode<K> {
    /// No NameNode is active.
    pub(super) const fn new() -> Self {
        Self {
            active: None,
            txid: None,
        }
    }

    /// The active one.
    pub(super) fn active(&self) -> Option<K> {
        self.active
    }

    /// A handshake answered with the state ACTIVE: believed while no other one is.
    pub(super) fn handshake(&mut self, who: K) -> ClaimChange<K> {
        if self.active.is_some() {
            return ClaimChange::Same;
        }
        self.active = Some(who);
        ClaimChange::Took { from: None }
    }

    /// A heartbeat was answered by `who`, active or not, whose newest transaction is `txid`.
    pub(super) fn heartbeat(&mut self, who: K, claims_active: bool, txid: u64) -> ClaimChange<K> {
        let believed = self.active == Some(who);
        let mut change = ClaimChange::Same;
        if claims_active && !believed {
            if let Some(known_txid) = self.txid.filter(|known| txid <= *known) {
                return ClaimChange::Refused { known_txid };
            }
            change = ClaimChange::Took {
                from: self.active.replace(who),
            };
        } else if !claims_active && believed {
            self.active = None;
            change = ClaimChange::Resigned;
        }
        if self.active == Some(who) {
            self.txid = Some(txid);
        }
        change
    }

    /// `who` is no longer served.
    pub(super) fn forget(&mut self, who: K) {
        if self.active == Some(who) {
            self.active = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ActiveNameNode, ClaimChange};

    #[test]
    fn a_failover_needs_a_newer_transaction() {
        let mut claim = ActiveNameNode::new();
        assert_eq!(
            claim.heartbeat('a', true, 10),
            ClaimChange::Took { from: None }
        );
        assert_eq!(claim.heartbeat('b', false, 9), ClaimChange::Same);
        assert_eq!(
            claim.heartbeat('b', true, 12),
            ClaimChange::Took { from: Some('a') }
        );
        assert_eq!(
            claim.heartbeat('a', true, 10),
            ClaimChange::Refused { known_txid: 12 }
        );
        assert_eq!(claim.active(), Some('b'));
        assert_eq!(claim.heartbeat('a', false, 10), ClaimChange::Same);
    }

    #[test]
    fn an_equal_transaction_is_not_newer() {
        let mut claim = ActiveNameNode::new();
        claim.heartbeat('a', true, 10);
        assert_eq!(
            claim.heartbeat('b', true, 10),
            ClaimChange::Refused { known_txid: 10 }
        );
    }

    #[test]
    fn none_is_active_after_a_resignation_until_a_newer_claim() {
        let mut claim = ActiveNameNode::new();
        claim.heartbeat('a', true, 10);
        assert_eq!(claim.heartbeat('a', false, 11), ClaimChange::Resigned);
        assert_eq!(claim.active(), None);
        assert_eq!(
            claim.heartbeat('b', true, 9),
            ClaimChange::Refused { known_txid: 10 }
        );
        assert_eq!(
            claim.heartbeat('b', true, 11),
            ClaimChange::Took { from: None }
        );
    }

    #[test]
    fn a_handshake_is_believed_only_while_none_is_active() {
        let mut claim = ActiveNameNode::new();
        assert_eq!(claim.handshake('a'), ClaimChange::Took { from: None });
        assert_eq!(claim.handshake('b'), ClaimChange::Same);
        assert_eq!(claim.active(), Some('a'));
        claim.forget('a');
        assert_eq!(claim.active(), None);
    }
}
