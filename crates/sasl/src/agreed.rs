//! What a handshake ends with.

use super::digests::SessionKeys;
use super::layer::{Opener, Sealer};
use super::quality::{LayerCipher, SaslQuality};

/// What both sides agreed on.
#[derive(Debug)]
pub struct Agreed {
    /// What the connection protects.
    pub quality: SaslQuality,
    /// What a server sends last, to prove that it knows the password too; empty at a client.
    pub proof: String,
    /// Messages of this side become protected, and those of the other side are opened; `None` with
    /// [`SaslQuality::Authentication`].
    pub layer: Option<(Sealer, Opener)>,
}

impl Agreed {
    pub(crate) fn of_server(
        quality: SaslQuality,
        cipher: Option<LayerCipher>,
        keys: &SessionKeys,
        proof: String,
    ) -> Self {
        let layer = layer(quality, cipher, keys);
        Self {
            quality,
            proof,
            layer: layer.map(|(client, server)| (server.sealer(), client.opener())),
        }
    }

    pub(crate) fn of_client(
        quality: SaslQuality,
        cipher: Option<LayerCipher>,
        keys: &SessionKeys,
    ) -> Self {
        let layer = layer(quality, cipher, keys);
        Self {
            quality,
            proof: String::new(),
            layer: layer.map(|(client, server)| (client.sealer(), server.opener())),
        }
    }
}

/// What client and server seal with.
fn layer(
    quality: SaslQuality,
    cipher: Option<LayerCipher>,
    keys: &SessionKeys,
) -> Option<(super::layer::Direction, super::layer::Direction)> {
    if quality == SaslQuality::Authentication {
        return None;
    }
    Some((keys.client_to_server(cipher), keys.server_to_client(cipher)))
}
