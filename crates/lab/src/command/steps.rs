//! What takes long, step by step.

use hayloft_console::progress::ProgressStep;

/// Shows what is being done, one step at a time. Dropped before its end, the last step is not done.
pub struct Steps(Option<ProgressStep>);

impl Steps {
    /// Nothing is being done yet.
    pub fn new() -> Self {
        Self(None)
    }

    /// The next step begins; the one before is done.
    pub fn tell(&mut self, what: &str) {
        self.end_with("done");
        self.0 = Some(ProgressStep::spinner(what));
    }

    /// The last step is done.
    pub fn done(mut self) {
        self.end_with("done");
    }

    fn end_with(&mut self, how: &str) {
        if let Some(step) = self.0.take() {
            step.done(how);
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.end_with("not done");
    }
}
