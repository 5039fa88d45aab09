//! Errors as Hadoop's clients know them: a Java exception in JSON, and a status that fits it.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use hayloft_wire::rpc::names::RETRIABLE_EXCEPTION;
use serde_json::json;

use super::closing;
use hayloft_client::FileError;

const ARGUMENT: &str = "java.lang.IllegalArgumentException";
const BUSY: StatusCode = StatusCode::SERVICE_UNAVAILABLE;
const REMOTE: &str = "org.apache.hadoop.ipc.RemoteException";

/// Why a request is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    status: StatusCode,
    class: String,
    message: String,
}

impl Refusal {
    fn new(status: StatusCode, class: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            class: class.to_owned(),
            message: message.into(),
        }
    }

    /// A parameter makes no sense.
    pub(super) fn argument(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, ARGUMENT, message)
    }

    /// The request is against a rule of this node.
    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        let class = "org.apache.hadoop.security.AccessControlException";
        Self::new(StatusCode::FORBIDDEN, class, message)
    }

    /// Too much is going on.
    pub(super) fn busy() -> Self {
        let message = "too many files are read and written through this node: try again later";
        Self::new(BUSY, RETRIABLE_EXCEPTION, message)
    }

    /// The client sent nothing for too long, or little while others waited.
    pub(super) fn stalled() -> Self {
        let class = "java.net.SocketTimeoutException";
        let message = "the request's body came to a halt, or too slowly while others waited";
        Self::new(StatusCode::REQUEST_TIMEOUT, class, message)
    }

    /// The node itself is at fault.
    pub(super) fn internal(message: impl Into<String>) -> Self {
        let class = "java.lang.RuntimeException";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, class, message)
    }
}

/// Whether Java has the class as an `IOException`: others a client cannot make anew from their
/// name, and leaves as a `RemoteException`.
fn is_io(class: &str) -> bool {
    let other = class.starts_with("java.lang.")
        || class == "org.apache.hadoop.HadoopIllegalArgumentException"
        || class == "org.apache.hadoop.fs.InvalidPathException";
    !other
}

impl From<FileError> for Refusal {
    fn from(error: FileError) -> Self {
        let class = match error.java_class() {
            class if is_io(class) => class,
            _ => REMOTE,
        };
        let status = match (&error, class) {
            (FileError::Busy, _) => BUSY,
            (_, "java.io.FileNotFoundException") => StatusCode::NOT_FOUND,
            _ => StatusCode::FORBIDDEN,
        };
        Self::new(status, class, error.message())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let simple = self.class.rsplit(['.', '$']).next().unwrap_or_default();
        let body = json!({"RemoteException": {
            "exception": simple,
            "javaClassName": self.class,
            "message": self.message,
        }});
        let kind = [(header::CONTENT_TYPE, "application/json; charset=utf-8")];
        closing((self.status, kind, body.to_string()).into_response())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(class: &str) -> (u16, String) {
        let refusal = Refusal::from(FileError::Remote {
            class: class.into(),
            message: "no".into(),
        });
        (refusal.status.as_u16(), refusal.class)
    }

    #[test]
    fn exceptions_have_apache_s_statuses() {
        for (class, status, told) in [
            (
                "java.io.FileNotFoundException",
                404,
                "java.io.FileNotFoundException",
            ),
            ("java.io.IOException", 403, "java.io.IOException"),
            (
                "org.apache.hadoop.security.AccessControlException",
                403,
                "org.apache.hadoop.security.AccessControlException",
            ),
            ("java.lang.UnsupportedOperationException", 403, REMOTE),
            ("org.apache.hadoop.fs.InvalidPathException", 403, REMOTE),
        ] {
            assert_eq!(of(class), (status, told.to_owned()), "{class}");
        }
        let beyond = Refusal::from(FileError::BeyondEnd);
        assert_eq!(
            (beyond.status.as_u16(), &*beyond.class),
            (403, "java.io.EOFException")
        );
        let busy = Refusal::from(FileError::Busy);
        assert_eq!(
            (busy.status.as_u16(), &*busy.class),
            (503, RETRIABLE_EXCEPTION)
        );
        assert_eq!(Refusal::argument("x").status, StatusCode::BAD_REQUEST);
    }

    #[tokio::test]
    async fn the_json_is_apache_s() {
        let response = Refusal::argument("a \"b\"").into_response();
        assert_eq!(response.headers()["connection"], "close");
        let body = axum::body::to_bytes(response.into_body(), 1000).await;
        assert_eq!(
            body.expect("small"),
            r#"{"RemoteException":{"exception":"IllegalArgumentException","javaClassName":"#
                .to_owned()
                + r#""java.lang.IllegalArgumentException","message":"a \"b\""}}"#
        );
    }
}
