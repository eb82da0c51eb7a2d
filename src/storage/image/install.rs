//! Makes an image that was received from another server the one that this server continues from.
//!
//! *Owns* the order in which batches for the log and received images become durable. To install an
//! image means:
//!
//! 1. it is complete under the name of a received image ([`Images::receive`]), and keeps it from when the
//!    replica accepts it ([`Images::hold_received`]);
//! 2. the log begins anew behind it ([`Log::reset`]);
//! 3. it gets the name of an image.
//!
//! A server that dies before 2 has what it had, and a leftover; one that dies before 3 finds a
//! received image at the very position that its log begins after, and does 3 when it starts again
//! (`dir/recovery.rs`). *Never* empties the log for an image that is not there, or that holds less than
//! what the log says is committed.

use super::images::{Copy, ImageError, Images};
use crate::fs::FsError;
use crate::log::{Log, LogError};
use lockkeeper_core::replica::{Append, Mark};

/// Why a batch could not be made durable: the server must end.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The log cannot be written.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The image to be installed is not there, or not what it should be. The log is as it was.
    #[error("cannot install the image received from another server: {0}")]
    Image(#[from] ImageError),
    /// The image cannot get its name: the next start does that.
    #[error("cannot install the image received from another server: {0}")]
    Fs(#[from] FsError),
}

/// Makes `appends` durable in order, images included.
///
/// # Errors
/// After any error the server must end.
pub fn append(log: &mut Log, images: &Images, appends: &[Append]) -> Result<(), InstallError> {
    let mut rest = appends;
    while let Some(first) = rest.first() {
        if let Some(mark) = &first.install {
            install(log, images, mark)?;
        }
        // Up to the next one that installs something.
        let next = rest[1..].iter().position(|append| append.install.is_some());
        let (batch, behind) = rest.split_at(next.map_or(rest.len(), |at| at + 1));
        log.append(batch)?;
        if first.install.is_some() {
            images.release_received();
        }
        rest = behind;
    }
    Ok(())
}

fn install(log: &mut Log, images: &Images, mark: &Mark) -> Result<(), InstallError> {
    // All of it was read back when it was received.
    let reader = images.open_copy(mark.index, Copy::Received)?;
    if reader.mark() != mark {
        let path = images.file(mark.index, Copy::Received);
        let what = format!("it holds {:?}, not {mark:?}", reader.mark());
        return Err(ImageError::Refused { path, what }.into());
    }
    log.reset(mark)?;
    images.install(mark.index)?;
    if let Err(error) = images.forget_received(mark.index) {
        tracing::warn!(target: crate::TARGET, %error, "older received images stay behind until the next start");
    }
    Ok(())
}
