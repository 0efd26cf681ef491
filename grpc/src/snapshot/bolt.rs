//! The file format of bbolt, the database of etcd.
//!
//! A file is a sequence of pages. Two *meta* pages contain the position of the root. A *freelist*
//! page lists unused pages, and is empty in these files. The pairs of a bucket are in *leaf* pages
//! under a tree of *branch* pages. Another leaf page, the root, lists the buckets.
//!
//! First the layout of all pages is planned. Then the pages are written one after the other from
//! the start of the file, so the file is never in memory as a whole. The plan takes memory for each
//! page, but not for each pair.

use std::fmt;
use std::ops::Range;

/// The unit of page lengths. The length of a page is a multiple of it.
pub(super) const PAGE_BYTES: usize = 4096;

pub(super) const PAGE_HEADER_BYTES: usize = 16;
/// The length of the entry that a page has for each of its pairs or children, without key and
/// value.
pub(super) const ELEMENT_BYTES: usize = 16;
pub(super) const BRANCH: u16 = 0x01;
pub(super) const LEAF: u16 = 0x02;
pub(super) const META: u16 = 0x04;
const FREELIST: u16 = 0x10;

pub(super) const MAGIC: u32 = 0xED0C_DAED;
pub(super) const FORMAT_VERSION: u32 = 2;
/// The flag of an element whose value is a bucket.
pub(super) const IS_BUCKET: u32 = 0x01;

pub(super) const META_PAGES: u64 = 2;
const FREELIST_PAGE: u64 = META_PAGES;
const FIRST_BUCKET_PAGE: u64 = FREELIST_PAGE + 1;

/// The pairs of a bucket, in the order of their keys. Keys are unique, and pairs do not change.
pub(super) trait BucketPairs: fmt::Debug + Send {
    /// Returns the number of pairs.
    fn len(&self) -> usize;
    /// Returns the length of the key of a pair.
    fn key_len(&self, index: usize) -> usize;
    /// Returns the length of the value of a pair.
    fn value_len(&self, index: usize) -> usize;
    /// Appends the key of a pair: exactly [`key_len`](Self::key_len) bytes.
    fn write_key(&self, index: usize, buffer: &mut Vec<u8>);
    /// Appends the value of a pair: exactly [`value_len`](Self::value_len) bytes.
    fn write_value(&self, index: usize, buffer: &mut Vec<u8>);
}

/// A named set of pairs.
#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) name: &'static str,
    pub(super) pairs: Box<dyn BucketPairs>,
}

/// The layout of a file.
#[derive(Debug)]
pub(super) struct BoltFile {
    buckets: Vec<Bucket>,
    /// The root page of the tree of each bucket.
    roots: Vec<u64>,
    /// The pages in the order in which they are written.
    pages: Vec<PlannedPage>,
    /// The length of the file in units of [`PAGE_BYTES`].
    end: u64,
}

/// The position and contents of a page.
#[derive(Debug)]
struct PlannedPage {
    id: u64,
    /// The length in units of [`PAGE_BYTES`].
    length: u64,
    content: PageContent,
}

/// The contents of a page.
#[derive(Clone, Debug)]
enum PageContent {
    Meta,
    Freelist,
    Leaf {
        bucket: usize,
        pairs: Range<usize>,
    },
    Branch {
        bucket: usize,
        /// Indexes in [`BoltFile::pages`].
        children: Range<usize>,
        /// The first pair under the page.
        first: usize,
    },
    /// The list of buckets.
    Buckets,
}

impl BoltFile {
    /// Plans the layout of a file with `buckets`. Visits all pairs.
    pub(super) fn plan(mut buckets: Vec<Bucket>) -> Self {
        buckets.sort_unstable_by_key(|bucket| bucket.name);
        let mut file = Self {
            buckets,
            roots: Vec::new(),
            pages: Vec::new(),
            end: 0,
        };
        for _ in 0..META_PAGES {
            file.add_page(PAGE_HEADER_BYTES, PageContent::Meta);
        }
        file.add_page(PAGE_HEADER_BYTES, PageContent::Freelist);
        debug_assert_eq!(file.end, FIRST_BUCKET_PAGE);
        for bucket in 0..file.buckets.len() {
            let root = file.add_bucket(bucket);
            file.roots.push(root);
        }
        let names = file.buckets.iter().map(|bucket| bucket.name.len());
        let elements = names.map(|name| ELEMENT_BYTES + name + BUCKET_BYTES);
        file.add_page(
            PAGE_HEADER_BYTES + elements.sum::<usize>(),
            PageContent::Buckets,
        );
        file
    }

    /// Returns the length of the file in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.end * PAGE_BYTES as u64
    }

    /// Returns the number of pages.
    pub(super) fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Adds a page at the end of the plan.
    fn add_page(&mut self, bytes: usize, content: PageContent) {
        let length = bytes.div_ceil(PAGE_BYTES) as u64;
        self.pages.push(PlannedPage {
            id: self.end,
            length,
            content,
        });
        self.end += length;
    }

    /// Adds the pages of a bucket, leaf pages first. Returns the root page of its tree.
    fn add_bucket(&mut self, bucket: usize) -> u64 {
        let leaves = self.pages.len();
        let pairs = &self.buckets[bucket].pairs;
        let sizes = |index| pairs.key_len(index) + pairs.value_len(index);
        for (pairs, bytes) in pack(0..pairs.len(), 1, sizes) {
            self.add_page(bytes, PageContent::Leaf { bucket, pairs });
        }
        let mut level = leaves..self.pages.len();
        while level.len() > 1 {
            let above = self.pages.len();
            let key_len = |index| {
                let page: &PlannedPage = &self.pages[index];
                self.buckets[bucket].pairs.key_len(page.first())
            };
            for (children, bytes) in pack(level, 2, key_len) {
                let first = self.pages[children.start].first();
                let branch = PageContent::Branch {
                    bucket,
                    children,
                    first,
                };
                self.add_page(bytes, branch);
            }
            level = above..self.pages.len();
        }
        self.pages[level.start].id
    }

    /// Appends the page with an index.
    pub(super) fn write_page(&self, index: usize, buffer: &mut Vec<u8>) {
        let page = &self.pages[index];
        let start = buffer.len();
        match &page.content {
            PageContent::Meta => {
                page.write_header(META, 0, buffer);
                self.write_meta(page.id, buffer);
            }
            PageContent::Freelist => page.write_header(FREELIST, 0, buffer),
            PageContent::Leaf { bucket, pairs } => {
                page.write_header(LEAF, pairs.len(), buffer);
                self.write_leaf(*bucket, pairs.clone(), buffer);
            }
            PageContent::Branch {
                bucket, children, ..
            } => {
                page.write_header(BRANCH, children.len(), buffer);
                self.write_branch(*bucket, children.clone(), buffer);
            }
            PageContent::Buckets => {
                page.write_header(LEAF, self.buckets.len(), buffer);
                self.write_buckets(buffer);
            }
        }
        debug_assert_eq!(
            (buffer.len() - start).div_ceil(PAGE_BYTES) as u64,
            page.length
        );
        let length = usize::try_from(page.length).unwrap_or(usize::MAX);
        buffer.resize(start + length * PAGE_BYTES, 0);
    }

    /// Writes the contents of a meta page. A reader uses the meta page with the higher transaction.
    fn write_meta(&self, transaction: u64, buffer: &mut Vec<u8>) {
        let start = buffer.len();
        buffer.extend(MAGIC.to_le_bytes());
        buffer.extend(FORMAT_VERSION.to_le_bytes());
        buffer.extend(u32_of(PAGE_BYTES).to_le_bytes());
        // No flags.
        buffer.extend(0_u32.to_le_bytes());
        let root = self.pages.last().map_or(0, |page| page.id);
        write_bucket(root, buffer);
        buffer.extend(FREELIST_PAGE.to_le_bytes());
        buffer.extend(self.end.to_le_bytes());
        buffer.extend(transaction.to_le_bytes());
        let checksum = fnv_1a(&buffer[start..]);
        buffer.extend(checksum.to_le_bytes());
    }

    fn write_leaf(&self, bucket: usize, range: Range<usize>, buffer: &mut Vec<u8>) {
        let pairs = &self.buckets[bucket].pairs;
        let mut position = range.len() * ELEMENT_BYTES;
        for index in range.clone() {
            let (key_len, value_len) = (pairs.key_len(index), pairs.value_len(index));
            // No flags: the value is not a bucket.
            write_leaf_element(0, position, key_len, value_len, buffer);
            position = position + key_len + value_len - ELEMENT_BYTES;
        }
        for index in range {
            pairs.write_key(index, buffer);
            pairs.write_value(index, buffer);
        }
    }

    fn write_branch(&self, bucket: usize, children: Range<usize>, buffer: &mut Vec<u8>) {
        let pairs = &self.buckets[bucket].pairs;
        let mut position = children.len() * ELEMENT_BYTES;
        for child in &self.pages[children.clone()] {
            let key_len = pairs.key_len(child.first());
            buffer.extend(u32_of(position).to_le_bytes());
            buffer.extend(u32_of(key_len).to_le_bytes());
            buffer.extend(child.id.to_le_bytes());
            position = position + key_len - ELEMENT_BYTES;
        }
        for child in &self.pages[children] {
            pairs.write_key(child.first(), buffer);
        }
    }

    fn write_buckets(&self, buffer: &mut Vec<u8>) {
        let mut position = self.buckets.len() * ELEMENT_BYTES;
        for bucket in &self.buckets {
            let name_len = bucket.name.len();
            write_leaf_element(IS_BUCKET, position, name_len, BUCKET_BYTES, buffer);
            position = position + name_len + BUCKET_BYTES - ELEMENT_BYTES;
        }
        for (bucket, root) in self.buckets.iter().zip(&self.roots) {
            buffer.extend(bucket.name.as_bytes());
            write_bucket(*root, buffer);
        }
    }
}

impl PlannedPage {
    /// Returns the first pair on or under the page.
    fn first(&self) -> usize {
        match &self.content {
            PageContent::Leaf { pairs, .. } => pairs.start,
            PageContent::Branch { first, .. } => *first,
            PageContent::Meta | PageContent::Freelist | PageContent::Buckets => 0,
        }
    }

    fn write_header(&self, flags: u16, count: usize, buffer: &mut Vec<u8>) {
        buffer.extend(self.id.to_le_bytes());
        buffer.extend(flags.to_le_bytes());
        // A page of one unit has at most 255 elements, and a longer page has one or two.
        let count = u16::try_from(count).unwrap_or(u16::MAX);
        buffer.extend(count.to_le_bytes());
        let overflow = u32::try_from(self.length - 1).unwrap_or(u32::MAX);
        buffer.extend(overflow.to_le_bytes());
    }
}

/// Distributes elements over pages, and returns the elements and the length of each page.
///
/// A page gets as many elements as fit into one unit, but at least `count_min`. Without elements
/// there is one empty page.
fn pack(
    elements: Range<usize>,
    count_min: usize,
    bytes_of: impl Fn(usize) -> usize,
) -> Vec<(Range<usize>, usize)> {
    let mut pages = Vec::new();
    let mut start = elements.start;
    let mut bytes = PAGE_HEADER_BYTES;
    for index in elements.clone() {
        let element = ELEMENT_BYTES + bytes_of(index);
        if index - start >= count_min && bytes + element > PAGE_BYTES {
            pages.push((start..index, bytes));
            (start, bytes) = (index, PAGE_HEADER_BYTES);
        }
        bytes += element;
    }
    pages.push((start..elements.end, bytes));
    pages
}

/// The length of the value of a bucket: the root page of its tree and an unused counter.
pub(super) const BUCKET_BYTES: usize = 16;

fn write_bucket(root: u64, buffer: &mut Vec<u8>) {
    buffer.extend(root.to_le_bytes());
    buffer.extend(0_u64.to_le_bytes());
}

/// Appends the element of a leaf page. `position` is the distance from the element to its key.
fn write_leaf_element(
    flags: u32,
    position: usize,
    key_len: usize,
    value_len: usize,
    buffer: &mut Vec<u8>,
) {
    buffer.extend(flags.to_le_bytes());
    buffer.extend(u32_of(position).to_le_bytes());
    buffer.extend(u32_of(key_len).to_le_bytes());
    buffer.extend(u32_of(value_len).to_le_bytes());
}

/// Converts a length. Requests are shorter than 4 GiB, so all lengths in the file fit.
fn u32_of(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Returns the checksum of a meta page.
pub(super) fn fnv_1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The pairs of a small bucket, in order.
impl BucketPairs for Vec<(Vec<u8>, Vec<u8>)> {
    fn len(&self) -> usize {
        self.len()
    }

    fn key_len(&self, index: usize) -> usize {
        self[index].0.len()
    }

    fn value_len(&self, index: usize) -> usize {
        self[index].1.len()
    }

    fn write_key(&self, index: usize, buffer: &mut Vec<u8>) {
        buffer.extend(&self[index].0);
    }

    fn write_value(&self, index: usize, buffer: &mut Vec<u8>) {
        buffer.extend(&self[index].1);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    type ExpectedPairs = BTreeMap<Vec<u8>, Vec<u8>>;

    /// Reads a file according to the documentation of bbolt, and checks the properties that a
    /// reader depends on.
    struct FileReader<'a>(&'a [u8]);

    impl FileReader<'_> {
        fn number<const N: usize>(&self, offset: usize) -> u64 {
            let mut bytes = [0; 8];
            bytes[..N].copy_from_slice(&self.0[offset..offset + N]);
            u64::from_le_bytes(bytes)
        }

        fn size(&self, offset: usize) -> usize {
            usize::try_from(self.number::<4>(offset)).unwrap()
        }

        fn page(&self, id: u64) -> usize {
            let offset = usize::try_from(id).unwrap() * PAGE_BYTES;
            assert_eq!(self.number::<8>(offset), id);
            offset
        }

        /// Appends key, value and flags of all pairs of a tree.
        fn pairs(&self, id: u64, into: &mut Vec<(Vec<u8>, Vec<u8>, u64)>) {
            let page = self.page(id);
            let count = usize::try_from(self.number::<2>(page + 10)).unwrap();
            let elements = (0..count).map(|nth| page + PAGE_HEADER_BYTES + nth * ELEMENT_BYTES);
            match self.number::<2>(page + 8) {
                0x01 => {
                    for offset in elements {
                        let key = offset + self.size(offset);
                        let key = &self.0[key..key + self.size(offset + 4)];
                        let before = into.len();
                        self.pairs(self.number::<8>(offset + 8), into);
                        assert_eq!(into[before].0, key);
                    }
                }
                0x02 => {
                    for offset in elements {
                        let key = offset + self.size(offset + 4);
                        let value = key + self.size(offset + 8);
                        let end = value + self.size(offset + 12);
                        into.push((
                            self.0[key..value].to_vec(),
                            self.0[value..end].to_vec(),
                            self.number::<4>(offset),
                        ));
                    }
                }
                flags => panic!("page {id} has flags {flags}"),
            }
        }

        fn buckets(&self) -> BTreeMap<String, ExpectedPairs> {
            for (id, flags) in [(0, META), (1, META), (2, FREELIST)] {
                let page = self.page(id);
                assert_eq!(self.number::<2>(page + 8), u64::from(flags));
                assert_eq!(self.number::<2>(page + 10), 0);
            }
            let meta = PAGE_BYTES + PAGE_HEADER_BYTES;
            assert_eq!(self.number::<4>(meta), 0xED0C_DAED);
            assert_eq!(self.number::<8>(meta + 32), 2);
            assert_eq!(
                self.number::<8>(meta + 40) * PAGE_BYTES as u64,
                self.0.len() as u64
            );
            assert_eq!(self.number::<8>(meta + 48), 1);
            assert_eq!(
                self.number::<8>(meta + 56),
                fnv_1a(&self.0[meta..meta + 56])
            );
            let mut buckets = Vec::new();
            self.pairs(self.number::<8>(meta + 16), &mut buckets);
            let buckets = buckets.into_iter().map(|(name, value, flags)| {
                assert_eq!((flags, value.len()), (1, 16));
                let root = u64::from_le_bytes(value[..8].try_into().unwrap());
                let mut pairs = Vec::new();
                self.pairs(root, &mut pairs);
                assert!(pairs.is_sorted());
                let pairs = pairs.into_iter().map(|(key, value, flags)| {
                    assert_eq!(flags, 0);
                    (key, value)
                });
                (String::from_utf8(name).unwrap(), pairs.collect())
            });
            buckets.collect()
        }
    }

    fn check(buckets: &[(&'static str, ExpectedPairs)]) {
        let planned = buckets.iter().map(|(name, pairs)| Bucket {
            name,
            pairs: Box::new(Vec::from_iter(pairs.clone())),
        });
        let file = BoltFile::plan(planned.collect());
        let mut written = Vec::new();
        for page in 0..file.pages() {
            file.write_page(page, &mut written);
        }
        assert_eq!(written.len() as u64, file.bytes());
        let expected = buckets
            .iter()
            .map(|(name, pairs)| ((*name).to_owned(), pairs.clone()));
        assert_eq!(FileReader(&written).buckets(), expected.collect());
    }

    fn pairs(count: u32, value_bytes: usize) -> ExpectedPairs {
        let pair = |n: u32| (n.to_be_bytes().to_vec(), vec![b'v'; value_bytes]);
        (0..count).map(pair).collect()
    }

    #[test]
    fn mt_6_a_written_file_can_be_read() {
        check(&[]);
        check(&[("empty", ExpectedPairs::new())]);
        check(&[
            ("b", pairs(1, 0)),
            ("a", pairs(3, 10)),
            ("c", ExpectedPairs::new()),
        ]);
        // A leaf page has room for 113 of these pairs, a branch page for 204 of these keys.
        for count in [112, 113, 114, 113 * 203, 113 * 204, 113 * 205] {
            check(&[("many", pairs(count, 12)), ("one", pairs(1, 1))]);
        }
    }

    #[test]
    fn mt_6_pages_grow_with_large_values_and_keys() {
        for value_bytes in [4059, 4060, 4061, 8156, 8157, 100_000] {
            check(&[("large", pairs(5, value_bytes))]);
        }
        let name = |n: u8| (vec![n; 9_000], vec![n]);
        check(&[("names", (0..9).map(name).collect())]);
    }

    #[test]
    fn the_checksum_of_meta_pages_is_fnv_1a() {
        assert_eq!(fnv_1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv_1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv_1a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
