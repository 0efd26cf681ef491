//! Objects as rows of tables, as kubectl prints them.
