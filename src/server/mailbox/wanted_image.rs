//! What a backup wants of the state thread.

use tokio::sync::oneshot;

use crate::storage::ImageReader;

/// An image of the state at this zxid or a later one, for a backup.
#[derive(Debug)]
pub(in crate::server) struct WantedImage {
    /// The zxid.
    pub(in crate::server) zxid: i64,
    /// Where the image goes, open for reading, or why there is none. The backup may have given up meanwhile.
    pub(in crate::server) answer: oneshot::Sender<Result<ImageReader, String>>,
}
