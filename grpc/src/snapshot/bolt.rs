//! The file format of bbolt, in which etcd keeps its store: how such a file is laid out and written.
//!
//! A file is a sequence of pages, of which some are longer than others. Two *meta* pages say where
//! the rest is; a *freelist* names unused pages, of which there are none here; the pairs of a bucket
//! stand in *leaf* pages under a tree of *branch* pages, and one more leaf names the buckets.
//!
//! A file is planned as a whole and then written page by page from the front, so that it never has
//! to be there as a whole. A plan has an entry for each page, and nothing for each pair.

use std::fmt;
use std::ops::Range;

/// What a page has, or a whole number of times that.
pub(super) const PAGE_BYTES: usize = 4096;

const PAGE_HEADER_BYTES: usize = 16;
/// What stands in a page for each of its pairs or children, besides keys and values.
const ELEMENT_BYTES: usize = 16;
const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
const META: u16 = 0x04;
const FREELIST: u16 = 0x10;

const MAGIC: u32 = 0xED0C_DAED;
const FORMAT_VERSION: u32 = 2;
/// The flag of a pair whose value is a bucket.
const IS_BUCKET: u32 = 0x01;

const META_PAGES: u64 = 2;
const FREELIST_PAGE: u64 = META_PAGES;
const FIRST_BUCKET_PAGE: u64 = FREELIST_PAGE + 1;

/// Pairs in the order of their keys, of which no two are the same. They do not change.
pub(super) trait Pairs: fmt::Debug + Send {
    fn len(&self) -> usize;
    fn key_len(&self, at: usize) -> usize;
    fn value_len(&self, at: usize) -> usize;
    /// Appends exactly as many bytes as were announced.
    fn write_key(&self, at: usize, buffer: &mut Vec<u8>);
    /// The same, for the value.
    fn write_value(&self, at: usize, buffer: &mut Vec<u8>);
}

/// A named part of a file.
#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) name: &'static str,
    pub(super) pairs: Box<dyn Pairs>,
}

/// A file that is planned.
#[derive(Debug)]
pub(super) struct File {
    buckets: Vec<Bucket>,
    /// Where the tree of each bucket begins.
    roots: Vec<u64>,
    /// In the order in which they are written.
    pages: Vec<Page>,
    end: u64,
}

#[derive(Debug)]
struct Page {
    id: u64,
    /// How many plain pages it takes.
    length: u64,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    Meta,
    Freelist,
    Leaf {
        bucket: usize,
        pairs: Range<usize>,
    },
    Branch {
        bucket: usize,
        /// Places in the list of pages.
        children: Range<usize>,
        /// The first pair below.
        first: usize,
    },
    Buckets,
}

impl File {
    /// Costs a walk over all pairs.
    pub(super) fn plan(mut buckets: Vec<Bucket>) -> Self {
        buckets.sort_unstable_by_key(|bucket| bucket.name);
        let mut file = Self {
            buckets,
            roots: Vec::new(),
            pages: Vec::new(),
            end: 0,
        };
        for _ in 0..META_PAGES {
            file.place(PAGE_HEADER_BYTES, Content::Meta);
        }
        file.place(PAGE_HEADER_BYTES, Content::Freelist);
        debug_assert_eq!(file.end, FIRST_BUCKET_PAGE);
        for bucket in 0..file.buckets.len() {
            let root = file.place_bucket(bucket);
            file.roots.push(root);
        }
        let names = file.buckets.iter().map(|bucket| bucket.name.len());
        let elements = names.map(|name| ELEMENT_BYTES + name + BUCKET_BYTES);
        file.place(
            PAGE_HEADER_BYTES + elements.sum::<usize>(),
            Content::Buckets,
        );
        file
    }

    /// How long the file is.
    pub(super) fn bytes(&self) -> u64 {
        self.end * PAGE_BYTES as u64
    }

    /// How many pages are to be written.
    pub(super) fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Puts a page at the end of the plan.
    fn place(&mut self, bytes: usize, content: Content) {
        let length = bytes.div_ceil(PAGE_BYTES) as u64;
        self.pages.push(Page {
            id: self.end,
            length,
            content,
        });
        self.end += length;
    }

    /// Plans a bucket, leaves first; returns the page that its tree begins at.
    fn place_bucket(&mut self, bucket: usize) -> u64 {
        let leaves = self.pages.len();
        let pairs = &self.buckets[bucket].pairs;
        let sizes = |at| pairs.key_len(at) + pairs.value_len(at);
        for (pairs, bytes) in packed(0..pairs.len(), 1, sizes) {
            self.place(bytes, Content::Leaf { bucket, pairs });
        }
        let mut level = leaves..self.pages.len();
        while level.len() > 1 {
            let above = self.pages.len();
            let key_len = |at| {
                let page: &Page = &self.pages[at];
                self.buckets[bucket].pairs.key_len(page.first())
            };
            for (children, bytes) in packed(level, 2, key_len) {
                let first = self.pages[children.start].first();
                let branch = Content::Branch {
                    bucket,
                    children,
                    first,
                };
                self.place(bytes, branch);
            }
            level = above..self.pages.len();
        }
        self.pages[level.start].id
    }

    /// Appends a page.
    pub(super) fn write_page(&self, at: usize, buffer: &mut Vec<u8>) {
        let page = &self.pages[at];
        let start = buffer.len();
        match &page.content {
            Content::Meta => {
                page.write_header(META, 0, buffer);
                self.write_meta(page.id, buffer);
            }
            Content::Freelist => page.write_header(FREELIST, 0, buffer),
            Content::Leaf { bucket, pairs } => {
                page.write_header(LEAF, pairs.len(), buffer);
                self.write_leaf(*bucket, pairs.clone(), buffer);
            }
            Content::Branch {
                bucket, children, ..
            } => {
                page.write_header(BRANCH, children.len(), buffer);
                self.write_branch(*bucket, children.clone(), buffer);
            }
            Content::Buckets => {
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

    /// Either meta page, of which a reader takes the one with the higher transaction.
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
        for at in range.clone() {
            let (key_len, value_len) = (pairs.key_len(at), pairs.value_len(at));
            // No flags: a plain pair.
            write_leaf_element(0, position, key_len, value_len, buffer);
            position = position + key_len + value_len - ELEMENT_BYTES;
        }
        for at in range {
            pairs.write_key(at, buffer);
            pairs.write_value(at, buffer);
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

impl Page {
    /// The first pair on or below the page.
    fn first(&self) -> usize {
        match &self.content {
            Content::Leaf { pairs, .. } => pairs.start,
            Content::Branch { first, .. } => *first,
            Content::Meta | Content::Freelist | Content::Buckets => 0,
        }
    }

    fn write_header(&self, flags: u16, count: usize, buffer: &mut Vec<u8>) {
        buffer.extend(self.id.to_le_bytes());
        buffer.extend(flags.to_le_bytes());
        // A plain page has room for 255 elements, and a longer one has only as many as it must.
        let count = u16::try_from(count).unwrap_or(u16::MAX);
        buffer.extend(count.to_le_bytes());
        let overflow = u32::try_from(self.length - 1).unwrap_or(u32::MAX);
        buffer.extend(overflow.to_le_bytes());
    }
}

/// Spreads elements over pages: as many as fit into a plain one, but at least so many. Where there
/// is nothing, there is one page without anything.
fn packed(
    elements: Range<usize>,
    count_min: usize,
    bytes_of: impl Fn(usize) -> usize,
) -> Vec<(Range<usize>, usize)> {
    let mut pages = Vec::new();
    let mut start = elements.start;
    let mut bytes = PAGE_HEADER_BYTES;
    for at in elements.clone() {
        let element = ELEMENT_BYTES + bytes_of(at);
        if at - start >= count_min && bytes + element > PAGE_BYTES {
            pages.push((start..at, bytes));
            (start, bytes) = (at, PAGE_HEADER_BYTES);
        }
        bytes += element;
    }
    pages.push((start..elements.end, bytes));
    pages
}

/// What stands for a bucket: the page its tree begins at, and a counter that nobody uses.
const BUCKET_BYTES: usize = 16;

fn write_bucket(root: u64, buffer: &mut Vec<u8>) {
    buffer.extend(root.to_le_bytes());
    buffer.extend(0_u64.to_le_bytes());
}

/// `position` is that of the key, counted from here.
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

/// Requests are limited to less than 4 GiB, and so is what is made of them.
fn u32_of(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// The checksum of meta pages.
fn fnv_1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// A few pairs, in order.
impl Pairs for Vec<(Vec<u8>, Vec<u8>)> {
    fn len(&self) -> usize {
        self.len()
    }

    fn key_len(&self, at: usize) -> usize {
        self[at].0.len()
    }

    fn value_len(&self, at: usize) -> usize {
        self[at].1.len()
    }

    fn write_key(&self, at: usize, buffer: &mut Vec<u8>) {
        buffer.extend(&self[at].0);
    }

    fn write_value(&self, at: usize, buffer: &mut Vec<u8>) {
        buffer.extend(&self[at].1);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    type Plain = BTreeMap<Vec<u8>, Vec<u8>>;

    /// Reads a file as bbolt's documentation says, and checks what a reader relies on.
    struct Reader<'a>(&'a [u8]);

    impl Reader<'_> {
        fn number<const N: usize>(&self, at: usize) -> u64 {
            let mut bytes = [0; 8];
            bytes[..N].copy_from_slice(&self.0[at..at + N]);
            u64::from_le_bytes(bytes)
        }

        fn size(&self, at: usize) -> usize {
            usize::try_from(self.number::<4>(at)).unwrap()
        }

        fn page(&self, id: u64) -> usize {
            let at = usize::try_from(id).unwrap() * PAGE_BYTES;
            assert_eq!(self.number::<8>(at), id);
            at
        }

        /// Key, value and flags of all pairs of a tree.
        fn pairs(&self, id: u64, into: &mut Vec<(Vec<u8>, Vec<u8>, u64)>) {
            let page = self.page(id);
            let count = usize::try_from(self.number::<2>(page + 10)).unwrap();
            let elements = (0..count).map(|nth| page + PAGE_HEADER_BYTES + nth * ELEMENT_BYTES);
            match self.number::<2>(page + 8) {
                0x01 => {
                    for at in elements {
                        let key = at + self.size(at);
                        let key = &self.0[key..key + self.size(at + 4)];
                        let before = into.len();
                        self.pairs(self.number::<8>(at + 8), into);
                        assert_eq!(into[before].0, key);
                    }
                }
                0x02 => {
                    for at in elements {
                        let key = at + self.size(at + 4);
                        let value = key + self.size(at + 8);
                        let end = value + self.size(at + 12);
                        into.push((
                            self.0[key..value].to_vec(),
                            self.0[value..end].to_vec(),
                            self.number::<4>(at),
                        ));
                    }
                }
                flags => panic!("page {id} has flags {flags}"),
            }
        }

        fn buckets(&self) -> BTreeMap<String, Plain> {
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

    fn check(buckets: &[(&'static str, Plain)]) {
        let planned = buckets.iter().map(|(name, pairs)| Bucket {
            name,
            pairs: Box::new(Vec::from_iter(pairs.clone())),
        });
        let file = File::plan(planned.collect());
        let mut written = Vec::new();
        for page in 0..file.pages() {
            file.write_page(page, &mut written);
        }
        assert_eq!(written.len() as u64, file.bytes());
        let expected = buckets
            .iter()
            .map(|(name, pairs)| ((*name).to_owned(), pairs.clone()));
        assert_eq!(Reader(&written).buckets(), expected.collect());
    }

    fn pairs(count: u32, value_bytes: usize) -> Plain {
        let pair = |n: u32| (n.to_be_bytes().to_vec(), vec![b'v'; value_bytes]);
        (0..count).map(pair).collect()
    }

    #[test]
    fn mt_6_what_is_written_can_be_read() {
        check(&[]);
        check(&[("empty", Plain::new())]);
        check(&[("b", pairs(1, 0)), ("a", pairs(3, 10)), ("c", Plain::new())]);
        // A page holds 113 such pairs; a branch page 204 of such keys.
        for count in [112, 113, 114, 113 * 203, 113 * 204, 113 * 205] {
            check(&[("many", pairs(count, 12)), ("one", pairs(1, 1))]);
        }
    }

    #[test]
    fn mt_6_large_values_and_keys_have_long_pages() {
        for value_bytes in [4059, 4060, 4061, 8156, 8157, 100_000] {
            check(&[("large", pairs(5, value_bytes))]);
        }
        let name = |n: u8| (vec![n; 9_000], vec![n]);
        check(&[("names", (0..9).map(name).collect())]);
    }

    #[test]
    fn the_checksum_is_fnv_1a() {
        assert_eq!(fnv_1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv_1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv_1a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
