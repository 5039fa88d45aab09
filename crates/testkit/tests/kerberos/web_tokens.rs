//! Delegation tokens of a stock NameNode's web port: asked for with a ticket, and forged.

use hayloft_testkit::error::Result;
use hayloft_testkit::realm::Realm;
use hayloft_testkit::{ClusterBuilder, TestkitError};
use hayloft_wire::proto::security::Token;
use hayloft_wire::token_text::{token_from_text, token_to_text};
use serde_json::Value;

use crate::at_localhost;
use crate::by_curl::{Answer, curl};

const NEGOTIATE: [&str; 3] = ["--negotiate", "-u", ":"];
pub const DENIED: &str = "org.apache.hadoop.security.AccessControlException";
pub const INVALID: &str = "org.apache.hadoop.security.token.SecretManager$InvalidToken";

/// Has the NameNode give tokens to callers with tickets on its web port.
pub fn gives_tokens(realm: &Realm, mut builder: ClusterBuilder) -> Result<ClusterBuilder> {
    let keytab = realm.dir().join("services.keytab");
    let secret = realm.dir().join("webhdfs-secret");
    std::fs::write(&secret, "of the NameNode\n").map_err(TestkitError::file("writing", &secret))?;
    for (name, value) in [
        ("type", "kerberos".to_owned()),
        ("kerberos.principal", at_localhost("HTTP")),
        ("kerberos.keytab", keytab.display().to_string()),
        // The test asks it without tickets.
        ("kerberos.endpoint.whitelist", "/jmx".to_owned()),
        ("signature.secret.file", secret.display().to_string()),
    ] {
        builder = builder.conf(&format!("hadoop.http.authentication.{name}"), value);
    }
    Ok(builder)
}

/// What a NameNode's web port answers to the holder of the present ticket.
pub fn asked_with_ticket(web: &str, op: &str, options: &[&str]) -> Result<Value> {
    let url = format!("{web}/webhdfs/v1/?op={op}");
    let options = [&NEGOTIATE[..], options].concat();
    Ok(curl(&url, &options)?.is("200")?.json())
}

/// A token for the holder of the present ticket.
pub fn new_token(web: &str, options: &[&str]) -> Result<String> {
    let given = asked_with_ticket(web, "GETDELEGATIONTOKEN&renewer=hdfs", options)?;
    let text = given["Token"]["urlString"].as_str().map(str::to_owned);
    text.ok_or_else(|| TestkitError::Expectation(given.to_string()))
}

/// The code, and the class of the exception that was told.
pub fn refusal(answer: &Answer) -> (String, String) {
    let told = &answer.json()["RemoteException"]["javaClassName"];
    let told = told.as_str().unwrap_or_default();
    (answer.code.clone(), told.to_owned())
}

/// Parameters with a token whose password is another, and with one whose identifier is.
pub fn forged(token: &str) -> Result<(String, String)> {
    let good = token_from_text(token);
    let good = good.map_err(|error| TestkitError::Expectation(error.to_string()))?;
    let flip = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        if let Some(last) = bytes.last_mut() {
            *last ^= 1;
        }
        bytes.into()
    };
    let password = Token {
        password: flip(&good.password),
        ..good.clone()
    };
    let identifier = Token {
        identifier: flip(&good.identifier),
        ..good
    };
    let [password, identifier] =
        [password, identifier].map(|token| format!("delegation={}", token_to_text(&token)));
    Ok((password, identifier))
}
