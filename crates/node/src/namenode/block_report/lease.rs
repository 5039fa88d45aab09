//! When the next full block report to a NameNode is due, and under which lease.
//!
//! A NameNode hands out few leases at a time, so that its nodes do not all report at once. A report
//! that is due is asked for in each heartbeat until a lease arrives; one that an administrator
//! forces needs none.

use std::time::Duration;

use tokio::time::Instant;

/// Due time and lease of full reports to one NameNode. Pure: the present and chance are arguments.
#[derive(Debug)]
pub(in crate::namenode) struct ReportSchedule {
    due: Instant,
    lease: u64,
    forced: bool,
    /// Another one was forced while one was being sent, which may have been made before what the
    /// other is to tell.
    forced_again: bool,
    /// The next report is the first after a registration. The following one is put at a random
    /// time, so that nodes that started together drift apart.
    first: bool,
    /// A report is being sent; its outcome is awaited.
    sending: bool,
    /// A registration or a new request arrived while one was being sent.
    again: bool,
    last: Option<Instant>,
}

impl ReportSchedule {
    /// Nothing is reported before the first registration.
    pub(in crate::namenode) fn new(now: Instant) -> Self {
        Self {
            due: now,
            lease: 0,
            forced: false,
            forced_again: false,
            first: true,
            sending: false,
            again: false,
            last: None,
        }
    }

    /// Registered: a full report is due within `delay`. `chance` is in 0.0..1.0.
    pub(in crate::namenode) fn registered(&mut self, now: Instant, delay: Duration, chance: f64) {
        self.due = now + delay.mul_f64(chance);
        self.lease = 0;
        self.first = true;
        self.again = self.sending;
    }

    /// A report is due now.
    pub(in crate::namenode) fn soon(&mut self, now: Instant) {
        self.due = self.due.min(now);
        self.again = self.sending;
    }

    /// A report leaves now, lease or not; after the one that is being sent.
    pub(in crate::namenode) fn force(&mut self) {
        self.forced = true;
        self.forced_again = self.sending;
    }

    /// Whether the next heartbeat should ask for a lease.
    pub(in crate::namenode) fn wants_lease(&self, now: Instant) -> bool {
        self.lease == 0 && !self.sending && now >= self.due
    }

    /// A heartbeat brought a lease; zero is none.
    pub(in crate::namenode) fn granted(&mut self, lease: u64) {
        if lease != 0 {
            self.lease = lease;
        }
    }

    /// The lease for a report to send now; zero: without one. `None`: nothing to send.
    pub(in crate::namenode) fn start(&mut self) -> Option<u64> {
        if self.sending || (self.lease == 0 && !self.forced) {
            return None;
        }
        self.sending = true;
        Some(self.lease)
    }

    /// The NameNode has taken the whole report.
    pub(in crate::namenode) fn sent(&mut self, now: Instant, interval: Duration, chance: f64) {
        self.sending = false;
        self.forced = std::mem::take(&mut self.forced_again);
        self.last = Some(now);
        self.lease = 0;
        if std::mem::take(&mut self.again) {
            self.due = self.due.min(now);
        } else if std::mem::take(&mut self.first) {
            self.due = now + interval.mul_f64(chance);
        } else {
            self.due = next_after(self.due, now, interval);
        }
    }

    /// The report failed in part or whole; all of it is made and sent again, so that a report
    /// forced meanwhile is that one. A lease that the NameNode no longer knows is dropped and asked
    /// for anew.
    pub(in crate::namenode) fn failed(&mut self, lease_is_void: bool) {
        self.sending = false;
        self.forced_again = false;
        if lease_is_void {
            self.lease = 0;
        }
    }

    /// What sent reports has ended without a word, and begins anew: one that was on its way then
    /// has failed.
    pub(in crate::namenode) fn begins_anew(&mut self) {
        if self.sending {
            self.failed(true);
        }
    }

    /// When the last report was taken.
    pub(in crate::namenode) fn last(&self) -> Option<Instant> {
        self.last
    }
}

/// The first of `due`, `due + interval`, ... that lies after `now`, at least one interval on.
fn next_after(due: Instant, now: Instant, interval: Duration) -> Instant {
    let late = now.saturating_duration_since(due);
    let periods = late.as_nanos() / interval.as_nanos().max(1) + 1;
    let periods = u32::try_from(periods).unwrap_or(u32::MAX);
    due.checked_add(interval.saturating_mul(periods))
        .unwrap_or(now + interval)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::ReportSchedule;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn asks_until_granted_then_reports_once() {
        let now = Instant::now();
        let mut schedule = ReportSchedule::new(now);
        schedule.registered(now, Duration::ZERO, 0.9);
        assert!(schedule.wants_lease(now));
        assert_eq!(schedule.start(), None);
        schedule.granted(0);
        schedule.granted(7);
        assert!(!schedule.wants_lease(now));
        assert_eq!(schedule.start(), Some(7));
        assert_eq!(schedule.start(), None);
        schedule.sent(now, HOUR, 0.5);
        assert!(!schedule.wants_lease(now + HOUR / 4));
        assert!(schedule.wants_lease(now + HOUR / 2));
    }

    #[test]
    fn after_the_first_the_period_is_kept() {
        let now = Instant::now();
        let mut schedule = ReportSchedule::new(now);
        schedule.registered(now, Duration::ZERO, 0.0);
        for (at, next) in [
            (now, now),
            (now, now + HOUR),
            (now + HOUR * 5 / 2, now + HOUR * 3),
        ] {
            schedule.granted(1);
            assert_eq!(schedule.start(), Some(1));
            schedule.sent(at, HOUR, 0.0);
            assert!(!schedule.wants_lease(next - Duration::from_millis(1)));
            assert!(schedule.wants_lease(next));
        }
    }

    #[test]
    fn a_failure_keeps_the_lease_unless_it_is_void() {
        let now = Instant::now();
        let mut schedule = ReportSchedule::new(now);
        schedule.registered(now, Duration::ZERO, 0.0);
        schedule.granted(3);
        schedule.start();
        schedule.failed(false);
        assert_eq!(schedule.start(), Some(3));
        schedule.failed(true);
        assert_eq!(schedule.start(), None);
        assert!(schedule.wants_lease(now));
    }

    #[test]
    fn forced_reports_need_no_lease_and_survive_failure() {
        let now = Instant::now();
        let mut schedule = ReportSchedule::new(now);
        schedule.registered(now, HOUR, 0.5);
        assert!(!schedule.wants_lease(now));
        schedule.force();
        assert_eq!(schedule.start(), Some(0));
        schedule.failed(false);
        assert_eq!(schedule.start(), Some(0));
        schedule.sent(now, HOUR, 0.5);
        assert_eq!(schedule.start(), None);
    }

    #[test]
    fn a_report_forced_during_another_follows_it() {
        let now = Instant::now();
        let mut schedule = ReportSchedule::new(now);
        schedule.registered(now, Duration::ZERO, 0.0);
        schedule.granted(3);
        assert_eq!(schedule.start(), Some(3));
        schedule.force();
        assert_eq!(schedule.start(), None);
        schedule.sent(now, HOUR, 0.5);
        assert_eq!(schedule.start(), Some(0));
        schedule.sent(now, HOUR, 0.5);
        assert_eq!(schedule.start(), None);
    }

    #[test]
    fn a_report_forced_during_one_that_fails_is_the_next_attempt() {
        let now = Instant::now();
        let mut schedule = ReportSchedule::new(now);
        schedule.registered(now, Duration::ZERO, 0.0);
        schedule.granted(3);
        schedule.start();
        schedule.force();
        schedule.failed(true);
        assert_eq!(schedule.start(), Some(0));
        schedule.sent(now, HOUR, 0.5);
        assert_eq!(schedule.start(), None);
    }

    #[test]
    fn a_registration_during_a_report_asks_for_another() {
        let now = Instant::now();
        let mut schedule = ReportSchedule::new(now);
        schedule.registered(now, Duration::ZERO, 0.0);
        schedule.granted(3);
        schedule.start();
        schedule.registered(now, Duration::ZERO, 0.0);
        schedule.sent(now, HOUR, 0.5);
        assert!(schedule.wants_lease(now));
    }
}
