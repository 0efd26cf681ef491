//! Custom resources: their definitions, structural schemas, and the strategies that follow from them.
