//! Keys of elliptic curves as rustls takes them: with their public half, which Java leaves out.

use rustls::pki_types::CertificateDer;
use rustls::server::ParsedCertificate;

use super::der::{BITS, INTEGER, OCTETS, Rest, SEQUENCE, encoded};

/// A value of this kind has the public half (RFC 5915).
const PUBLIC: u8 = 0xA1;
/// What an algorithm begins with that is one of elliptic curves (1.2.840.10045.2.1).
const ELLIPTIC: [u8; 9] = [0x06, 0x07, 0x2A, 0x86, 0x48, 0xCE, 0x3D, 0x02, 0x01];
/// Bytes before the two coordinates of a public key: no unused bits, not compressed.
const UNCOMPRESSED: [u8; 2] = [0x00, 0x04];

/// The key (PKCS#8) with the public half that its certificate has; `None` for one of another kind,
/// or of another certificate.
pub(super) fn completed(key: &[u8], certificate: &[u8]) -> Option<Vec<u8>> {
    let mut outer = Rest(Rest(key).value(SEQUENCE).ok()?);
    let version = outer.value(INTEGER).ok()?;
    let algorithm = outer.value(SEQUENCE).ok()?;
    if !algorithm.starts_with(&ELLIPTIC) {
        return None;
    }
    let mut inner = Rest(Rest(outer.value(OCTETS).ok()?).value(SEQUENCE).ok()?);
    let inner_version = inner.value(INTEGER).ok()?;
    let secret = inner.value(OCTETS).ok()?;
    let certificate = CertificateDer::from(certificate);
    let public = ParsedCertificate::try_from(&certificate).ok()?;
    let public = public.subject_public_key_info();
    let mut public = Rest(Rest(&public).value(SEQUENCE).ok()?);
    if public.value(SEQUENCE).ok()? != algorithm {
        return None;
    }
    let public = public.value(BITS).ok()?;
    let coordinates = public.strip_prefix(&UNCOMPRESSED)?;
    // Older Javas leave out zeros at the beginning.
    let zeros = (coordinates.len() / 2).checked_sub(secret.len())?;
    let secret = [&vec![0; zeros], secret].concat();
    let inner = [
        encoded(INTEGER, inner_version)?,
        encoded(OCTETS, &secret)?,
        encoded(PUBLIC, &encoded(BITS, public)?)?,
    ];
    let outer = [
        encoded(INTEGER, version)?,
        encoded(SEQUENCE, algorithm)?,
        encoded(OCTETS, &encoded(SEQUENCE, &inner.concat())?)?,
    ];
    encoded(SEQUENCE, &outer.concat())
}
