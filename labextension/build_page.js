// Builds the gateway's own page of administrators into gateway/pages/static, from the compiled
// sources and the style sheets.

const fs = require('node:fs');
const path = require('node:path');
const { rspack } = require('@rspack/core');

const out = path.resolve(__dirname, '../gateway/pages/static');
const styles = ['page.css', 'admin.css'].map(name => fs.readFileSync(path.join(__dirname, 'style', name), 'utf8'));

const options = {
  mode: 'production',
  context: __dirname,
  entry: './lib/page/main.js',
  output: { path: out, filename: 'admin.js' },
  devtool: false,
  performance: false,
  // Names instead of hashes of paths: two checkouts build the same bytes.
  optimization: {
    moduleIds: 'named',
    chunkIds: 'named',
    // The licenses of the libraries in the bundle stand beside it.
    minimizer: [new rspack.SwcJsMinimizerRspackPlugin({ extractComments: true })]
  }
};

rspack(options, (error, result) => {
  if (error || result.hasErrors()) {
    console.error(error ?? result.toString({ colors: false }));
    process.exit(1);
  }
  fs.writeFileSync(path.join(out, 'admin.css'), styles.join('\n'));
});
