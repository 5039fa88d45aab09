//! What takes long, step by step.

use hayloft_console::progress::ProgressStep;

/// Shows what is being done, one step at a time.
pub struct Steps(Option<ProgressStep>);

impl Steps {
    /// Nothing is being done yet.
    pub fn new() -> Self {
        Self(None)
    }

    /// The next step begins; the one before is done.
    pub fn tell(&mut self, what: &str) {
        self.done();
        self.0 = Some(ProgressStep::spinner(what));
    }

    fn done(&mut self) {
        if let Some(step) = self.0.take() {
            step.done("done");
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.done();
    }
}
