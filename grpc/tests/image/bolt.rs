//! Files of bbolt, page by page, as nobody writes them.

use sha2::{Digest, Sha256};

pub(crate) const PAGE: usize = 4096;
const BRANCH: u16 = 1;
const LEAF: u16 = 2;
const META: u16 = 4;

/// The pairs of a page, or its buckets.
pub(crate) type Pairs<'a> = &'a [(&'a [u8], &'a [u8])];

fn header(id: u64, flags: u16, count: usize, overflow: usize) -> Vec<u8> {
    let mut page = id.to_le_bytes().to_vec();
    page.extend(flags.to_le_bytes());
    page.extend(u16::try_from(count).unwrap().to_le_bytes());
    page.extend(u32::try_from(overflow).unwrap().to_le_bytes());
    page
}

/// An element of a leaf page: whether it is a bucket, the position of the pair in the page, and its lengths.
pub(crate) struct Element {
    pub(crate) is_bucket: bool,
    pub(crate) start: usize,
    pub(crate) key_len: usize,
    pub(crate) value_len: usize,
}

/// A leaf page with these elements, and these bytes behind them.
pub(crate) fn leaf_of(id: u64, elements: &[Element], contents: &[u8]) -> Vec<u8> {
    let len = 16 + 16 * elements.len() + contents.len();
    let pages = len.div_ceil(PAGE);
    let mut page = header(id, LEAF, elements.len(), pages - 1);
    for (at, element) in elements.iter().enumerate() {
        let numbers = [
            usize::from(element.is_bucket),
            element.start - (16 + 16 * at),
            element.key_len,
            element.value_len,
        ];
        page.extend(
            numbers
                .map(|it| u32::try_from(it).unwrap().to_le_bytes())
                .concat(),
        );
    }
    page.extend(contents);
    page.resize(pages * PAGE, 0);
    page
}

pub(crate) fn leaf(id: u64, pairs: Pairs<'_>, is_bucket: bool) -> Vec<u8> {
    let mut contents = Vec::new();
    let elements = pairs.iter().map(|(key, value)| {
        let start = 16 + 16 * pairs.len() + contents.len();
        contents.extend([*key, *value].concat());
        Element {
            is_bucket,
            start,
            key_len: key.len(),
            value_len: value.len(),
        }
    });
    let elements: Vec<_> = elements.collect();
    leaf_of(id, &elements, &contents)
}

pub(crate) fn branch(id: u64, children: &[u64]) -> Vec<u8> {
    let mut page = header(id, BRANCH, children.len(), 0);
    for child in children {
        page.extend([0; 8]);
        page.extend(child.to_le_bytes());
    }
    page.resize(PAGE, 0);
    page
}

/// A bucket with its root in a page.
pub(crate) fn root(page: u64) -> [u8; 16] {
    let mut bucket = [0; 16];
    bucket[..8].copy_from_slice(&page.to_le_bytes());
    bucket
}

/// A bucket whose page is inside of the list of buckets.
pub(crate) fn inline(page: &[u8]) -> Vec<u8> {
    [&root(0)[..], page].concat()
}

/// A file whose list of buckets is in page 2. The other pages follow it.
pub(crate) fn file(buckets: Pairs<'_>, pages: &[Vec<u8>]) -> Vec<u8> {
    let buckets = leaf(2, buckets, true);
    let body = [&buckets[..], &pages.concat()].concat();
    let count = 2 + body.len() as u64 / PAGE as u64;
    let mut file = Vec::new();
    for id in 0..2 {
        let mut meta = [0xed0c_daed_u32, 2, 4096, 0].map(u32::to_le_bytes).concat();
        meta.extend([2, 0, 2, count, 5 - id].map(u64::to_le_bytes).concat());
        let checksum = super::etcd::fnv_1a(&meta);
        let mut page = header(id, META, 0, 0);
        page.extend(meta);
        page.extend(checksum.to_le_bytes());
        page.resize(PAGE, 0);
        file.extend(page);
    }
    file.extend(body);
    let hash = Sha256::digest(&file);
    file.extend(&hash[..]);
    file
}
