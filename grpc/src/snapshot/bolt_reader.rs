//! Reads a file of bbolt, whose contents nothing is assumed of.
//!
//! One page is in memory at a time for each level of a tree, at most [`PAGE_RUN_BYTES_MAX`] each. No page is read
//! twice, and no byte of a page belongs to two pairs, as bbolt writes them: so a tree whose pages refer to each other
//! ends with an error, and all pairs together are not longer than the file.

use std::io::{self, Read, Seek, SeekFrom};

use thiserror::Error;

use super::bolt::{
    BRANCH, BUCKET_BYTES, ELEMENT_BYTES, FORMAT_VERSION, IS_BUCKET, LEAF, MAGIC, META, META_PAGES,
    PAGE_HEADER_BYTES, fnv_1a,
};

/// The largest length of a page with its overflow: room for the largest value.
const PAGE_RUN_BYTES_MAX: u64 = (1 << 30) + (1 << 24);

/// The largest height of a tree. A page has at least two children, so a higher one does not occur.
const HEIGHT_MAX: u32 = 64;

/// The lengths of pages that systems have.
const PAGE_BYTES: [u64; 7] = [
    1 << 10,
    1 << 11,
    1 << 12,
    1 << 13,
    1 << 14,
    1 << 15,
    1 << 16,
];

/// The length of the contents of a meta page without the checksum.
const META_BYTES: usize = 56;

/// The error of reading a database file.
#[derive(Debug, Error)]
pub(crate) enum BoltError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("offset {offset}: {reason}")]
    Damaged { offset: u64, reason: &'static str },
}

/// A database file.
#[derive(Debug)]
pub(crate) struct BoltReader<R> {
    file: R,
    page_bytes: u64,
    /// The number of pages in use. The file may be longer.
    pages: u64,
    root: u64,
    /// The offset of the meta page that refers to the root.
    meta_offset: u64,
    /// One bit for each page: whether it was read.
    read: Vec<u64>,
}

/// The pairs of a bucket.
#[derive(Clone, Debug)]
pub(crate) enum BucketPlace {
    /// In a tree of pages. The offset is that of the bucket in the list of buckets.
    Tree { root: u64, offset: u64 },
    /// In a page inside of the list of buckets.
    Inline { page: Vec<u8>, offset: u64 },
}

/// A pair with its offset in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) offset: u64,
}

/// What is done with a pair.
type Visit<'v, E> = &'v mut dyn FnMut(Pair<'_>) -> Result<(), E>;

impl<R: Read + Seek> BoltReader<R> {
    /// Reads the meta pages of a file of `len` bytes.
    pub(crate) fn open(mut file: R, len: u64) -> Result<Self, BoltError> {
        let first = read_meta(&mut file, len, 0)?;
        let lengths = match &first {
            Some(first) => vec![first.page_bytes],
            // Without the first meta page, the second one may be at any of these.
            None => PAGE_BYTES.to_vec(),
        };
        let mut metas = Vec::from_iter(first);
        for length in lengths {
            let second = read_meta(&mut file, len, length)?;
            metas.extend(second.filter(|meta| meta.page_bytes == length));
        }
        let newest = metas.into_iter().max_by_key(|meta| meta.transaction);
        let reason = "there is no valid meta page: this is no database of etcd";
        let meta = newest.ok_or(BoltError::Damaged { offset: 0, reason })?;
        if meta.pages > len / meta.page_bytes {
            let reason = "the file is shorter than its meta page says";
            return Err(BoltError::Damaged {
                offset: len,
                reason,
            });
        }
        let words = usize::try_from(meta.pages.div_ceil(64)).unwrap_or(usize::MAX);
        Ok(Self {
            file,
            page_bytes: meta.page_bytes,
            pages: meta.pages,
            root: meta.root,
            meta_offset: meta.offset,
            read: vec![0; words],
        })
    }

    /// Forgets which pages were read, so that one bucket can be read again.
    pub(crate) fn rewind(&mut self) {
        self.read.fill(0);
    }

    /// Returns the buckets, by name.
    pub(crate) fn buckets(&mut self) -> Result<Vec<(Vec<u8>, BucketPlace)>, BoltError> {
        let mut buckets = Vec::new();
        let root = Child {
            id: self.root,
            height: 0,
            parent_offset: self.meta_offset,
        };
        self.visit_tree(root, &mut Order::default(), true, &mut |pair| {
            let Some((header, page)) = pair.value.split_at_checked(BUCKET_BYTES) else {
                let (offset, reason) = (pair.offset, "a bucket is too short");
                return Err(BoltError::Damaged { offset, reason });
            };
            let place = match number::<8>(header, 0) {
                0 => BucketPlace::Inline {
                    page: page.to_vec(),
                    offset: pair.offset,
                },
                root => BucketPlace::Tree {
                    root,
                    offset: pair.offset,
                },
            };
            buckets.push((pair.key.to_vec(), place));
            Ok(())
        })?;
        Ok(buckets)
    }

    /// Calls `visit` with the pairs of a bucket, in the order of their keys, until it fails. A bucket with a page of one
    /// that was read is damaged.
    pub(crate) fn visit<E: From<BoltError>>(
        &mut self,
        bucket: &BucketPlace,
        visit: Visit<'_, E>,
    ) -> Result<(), E> {
        let mut order = Order::default();
        match bucket {
            BucketPlace::Tree { root, offset } => {
                let root = Child {
                    id: *root,
                    height: 0,
                    parent_offset: *offset,
                };
                self.visit_tree(root, &mut order, false, visit)
            }
            BucketPlace::Inline { page, offset } => {
                let page = Page {
                    bytes: page,
                    offset: *offset,
                };
                match page.flags()? {
                    LEAF => page.visit_leaf(&mut order, false, visit),
                    _ => Err(page.damaged("an inline bucket is no leaf page").into()),
                }
            }
        }
    }

    fn visit_tree<E: From<BoltError>>(
        &mut self,
        child: Child,
        order: &mut Order,
        are_buckets: bool,
        visit: Visit<'_, E>,
    ) -> Result<(), E> {
        let bytes = self.read_page(child)?;
        let page = Page {
            bytes: &bytes,
            offset: child.id * self.page_bytes,
        };
        match page.flags()? {
            LEAF => page.visit_leaf(order, are_buckets, visit),
            BRANCH if child.height >= HEIGHT_MAX => Err(page.damaged("a tree is too high").into()),
            BRANCH => {
                let count = page.count()?;
                if count == 0 {
                    return Err(page.damaged("a branch page is empty").into());
                }
                for at in 0..count {
                    let next = Child {
                        id: number::<8>(page.element(at), 8),
                        height: child.height + 1,
                        parent_offset: page.offset,
                    };
                    self.visit_tree(next, order, are_buckets, visit)?;
                }
                Ok(())
            }
            _ => Err(page.damaged("a page of a tree has another type").into()),
        }
    }

    /// Reads a page with its overflow.
    fn read_page(&mut self, child: Child) -> Result<Vec<u8>, BoltError> {
        let Child {
            id, parent_offset, ..
        } = child;
        if !(META_PAGES..self.pages).contains(&id) {
            let (offset, reason) = (
                parent_offset,
                "a page that is referred to is outside of the file",
            );
            return Err(BoltError::Damaged { offset, reason });
        }
        let offset = id * self.page_bytes;
        let damaged = |reason| BoltError::Damaged { offset, reason };
        let mut header = [0; PAGE_HEADER_BYTES];
        self.file.seek(SeekFrom::Start(offset))?;
        self.file.read_exact(&mut header)?;
        if number::<8>(&header, 0) != id {
            return Err(damaged("a page has the number of another one"));
        }
        let run = number::<4>(&header, 12) + 1;
        if run > self.pages - id || run * self.page_bytes > PAGE_RUN_BYTES_MAX {
            return Err(damaged("a page is longer than the file, or too long"));
        }
        for page in id..id + run {
            let (word, bit) = ((page / 64) as usize, 1 << (page % 64));
            if self.read[word] & bit != 0 {
                return Err(damaged("a page is used twice"));
            }
            self.read[word] |= bit;
        }
        let len = usize::try_from(run * self.page_bytes).unwrap_or(usize::MAX);
        let mut bytes = vec![0; len];
        bytes[..PAGE_HEADER_BYTES].copy_from_slice(&header);
        self.file.read_exact(&mut bytes[PAGE_HEADER_BYTES..])?;
        Ok(bytes)
    }
}

/// A page of a tree, as its parent refers to it.
#[derive(Clone, Copy, Debug)]
struct Child {
    id: u64,
    /// The number of pages above it.
    height: u32,
    /// The offset of what refers to it.
    parent_offset: u64,
}

/// The last key of a tree so far.
#[derive(Debug, Default)]
struct Order {
    last: Option<Vec<u8>>,
}

/// A page, with its overflow.
#[derive(Clone, Copy, Debug)]
struct Page<'a> {
    bytes: &'a [u8],
    offset: u64,
}

impl<'a> Page<'a> {
    fn damaged(&self, reason: &'static str) -> BoltError {
        let offset = self.offset;
        BoltError::Damaged { offset, reason }
    }

    fn flags(&self) -> Result<u16, BoltError> {
        if self.bytes.len() < PAGE_HEADER_BYTES {
            return Err(self.damaged("a page is too short"));
        }
        Ok(u16::from_le_bytes([self.bytes[8], self.bytes[9]]))
    }

    /// Returns the number of elements, which are inside of the page.
    fn count(&self) -> Result<usize, BoltError> {
        let count = usize::from(u16::from_le_bytes([self.bytes[10], self.bytes[11]]));
        if PAGE_HEADER_BYTES + count * ELEMENT_BYTES > self.bytes.len() {
            return Err(self.damaged("a page has more elements than it has room for"));
        }
        Ok(count)
    }

    fn element(&self, at: usize) -> &'a [u8] {
        let start = PAGE_HEADER_BYTES + at * ELEMENT_BYTES;
        &self.bytes[start..start + ELEMENT_BYTES]
    }

    fn visit_leaf<E: From<BoltError>>(
        self,
        order: &mut Order,
        are_buckets: bool,
        visit: Visit<'_, E>,
    ) -> Result<(), E> {
        let count = self.count()?;
        let mut free = PAGE_HEADER_BYTES + count * ELEMENT_BYTES;
        for at in 0..count {
            let pair = self.pair(at, are_buckets, &mut free)?;
            if order.last.as_deref().is_some_and(|last| pair.key <= last) {
                return Err(self.damaged("the keys of a bucket are out of order").into());
            }
            let last = order.last.get_or_insert_default();
            last.clear();
            last.extend(pair.key);
            visit(pair)?;
        }
        Ok(())
    }

    /// Returns a pair. It starts at `free` or later, the end of the one before it or of the elements, and moves that to its
    /// own end.
    fn pair(&self, at: usize, are_buckets: bool, free: &mut usize) -> Result<Pair<'a>, BoltError> {
        let element = self.element(at);
        let is_bucket = number::<4>(element, 0) & u64::from(IS_BUCKET) != 0;
        if is_bucket != are_buckets {
            return Err(self.damaged("there is a bucket in a bucket, or a pair outside of all"));
        }
        // Positions count from the element. Three numbers of 32 bits do not overflow.
        let start = (PAGE_HEADER_BYTES + at * ELEMENT_BYTES) as u64 + number::<4>(element, 4);
        let (key_len, value_len) = (number::<4>(element, 8), number::<4>(element, 12));
        let end = start + key_len + value_len;
        if end > self.bytes.len() as u64 {
            return Err(self.damaged("a pair is outside of its page"));
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "not above the length of the page"
        )]
        let (key, value, end) = (start as usize, (start + key_len) as usize, end as usize);
        if key < *free {
            return Err(
                self.damaged("a pair overlaps with the one before it, or with the elements")
            );
        }
        *free = end;
        Ok(Pair {
            key: &self.bytes[key..value],
            value: &self.bytes[value..end],
            offset: self.offset + start,
        })
    }
}

#[derive(Debug)]
struct Meta {
    page_bytes: u64,
    root: u64,
    pages: u64,
    transaction: u64,
    offset: u64,
}

/// Reads the meta page at an offset; `None` if it is not valid.
fn read_meta(file: &mut (impl Read + Seek), len: u64, offset: u64) -> io::Result<Option<Meta>> {
    let mut page = [0; PAGE_HEADER_BYTES + META_BYTES + 8];
    if len < offset + page.len() as u64 {
        return Ok(None);
    }
    file.seek(SeekFrom::Start(offset))?;
    file.read_exact(&mut page)?;
    let meta = &page[PAGE_HEADER_BYTES..];
    let is_valid = number::<2>(&page, 8) == u64::from(META)
        && number::<4>(meta, 0) == u64::from(MAGIC)
        && number::<4>(meta, 4) == u64::from(FORMAT_VERSION)
        && number::<8>(meta, META_BYTES) == fnv_1a(&meta[..META_BYTES]);
    let page_bytes = number::<4>(meta, 8);
    Ok(
        (is_valid && PAGE_BYTES.contains(&page_bytes)).then(|| Meta {
            page_bytes,
            root: number::<8>(meta, 16),
            pages: number::<8>(meta, 40),
            transaction: number::<8>(meta, 48),
            offset,
        }),
    )
}

/// Returns a number of `N` bytes.
fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number[..N].copy_from_slice(&bytes[at..at + N]);
    u64::from_le_bytes(number)
}
