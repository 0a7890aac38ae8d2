// Names instead of hashes of paths: two checkouts build the same bytes.
module.exports = { optimization: { moduleIds: 'named', chunkIds: 'named' } };
