//! Properties that change while a testbed runs.

use super::super::running::RECONFIGURE_LIMIT;
use super::{Driver, Result, Testbed, TestkitError};

impl Testbed {
    /// Gives the NameNode a property while it runs, by `client`. Clients and nodes that are started
    /// later have it too.
    ///
    /// # Errors
    /// With what the NameNode said, when it did not take it over.
    pub fn reconfigure_namenode(
        &mut self,
        client: &Driver,
        (key, value): (&str, &str),
    ) -> Result<()> {
        self.described.conf.insert(key.into(), value.into());
        self.namenode.write_conf(&self.conf(), false)?;
        let said = client.reconfigure_namenode(&self.namenode.rpc(), RECONFIGURE_LIMIT)?;
        taken(key, &said)
    }

    /// Gives the node at this position a property while it runs, by `client`.
    ///
    /// # Errors
    /// With what the node said, when it did not take it over.
    pub fn reconfigure_node(
        &mut self,
        client: &Driver,
        at: usize,
        (key, value): (&str, &str),
    ) -> Result<()> {
        let said = self.nodes[at].reconfigure(client, (key, value))?;
        taken(key, &said)
    }
}

/// An error unless what a server said of its reconfiguration names the property as changed.
fn taken(key: &str, said: &str) -> Result<()> {
    if said.contains(&format!("SUCCESS: Changed property {key}")) {
        return Ok(());
    }
    Err(TestkitError::Expectation(format!(
        "{key} was not taken over: {said}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_property_that_was_not_taken_over_is_named_with_what_was_said() {
        taken(
            "dfs.a",
            "Ended.\nSUCCESS: Changed property dfs.a\n\tFrom: 1",
        )
        .expect("taken");
        let error = taken("dfs.a", "FAILED: Change property dfs.a").expect_err("it failed");
        let error = error.to_string();
        assert!(
            error.contains("dfs.a was not taken over: FAILED"),
            "{error}"
        );
    }
}
