# Active Record, with the initializer of docs/orms.md (blobstate.rb): migrations, schema.rb, models.
#
# Exit status 3 where a library is missing.
begin
  require 'active_record'
  require 'pg'
rescue LoadError => error
  warn error.message
  exit 3
end
require 'stringio'

SERVER = {
  adapter: 'postgresql', host: ENV.fetch('PGHOST'), port: ENV.fetch('PGPORT'),
  username: ENV.fetch('PGUSER'), database: ENV.fetch('PGDATABASE')
}.freeze
ActiveRecord::Migration.verbose = false

def check(what, got, wanted)
  abort "not ok - #{what}: #{got.inspect[0, 200]}, wanted: #{wanted.inspect[0, 200]}" if got != wanted
  puts "ok - #{what}"
end

# The warning of the document.
ActiveRecord::Base.establish_connection(SERVER)
ActiveRecord::Base.connection.execute('CREATE TABLE undeclared (id serial PRIMARY KEY, content blobstate)')
class Undeclared < ActiveRecord::Base
  self.table_name = 'undeclared'
end
Undeclared.create!(content: 'a\\134b')
check('without the initializer text is stored, escapes are read in it, and hex text comes back',
      Undeclared.first.content, '\\x615c62')
ActiveRecord::Base.connection.drop_table('undeclared')

require_relative 'blobstate'
ActiveRecord::Base.establish_connection(SERVER)

class CreateDocument < ActiveRecord::Migration[6.1]
  def change
    create_table :document, id: :integer do |t|
      t.column :content, :blobstate
    end
  end
end

class Document < ActiveRecord::Base
  self.table_name = 'document'
end

def schema
  # Another method from 7.2 on.
  source = ActiveRecord::Base.respond_to?(:connection_pool) && ActiveRecord.version >= Gem::Version.new('7.2') ?
    ActiveRecord::Base.connection_pool : ActiveRecord::Base.connection
  ActiveRecord::SchemaDumper.dump(source, StringIO.new).string
end

directory = ENV.fetch('ORM_VALUES')
CONTENTS = Dir.children(directory).map(&:to_i).sort.to_h { |id| [id, File.binread("#{directory}/#{id}")] }
LAST = CONTENTS.size

def read
  CONTENTS.keys.to_h { |id| [id, Document.find(id).content] }
end

CreateDocument.migrate(:up)
dumped = schema
check('schema.rb has the table', dumped[/create_table "document".*?^  end/m],
      %(create_table "document", id: :serial, force: :cascade do |t|\n    t.blobstate "content"\n  end))
CreateDocument.migrate(:down)
eval dumped.gsub(/enable_extension "(?!blobext)/, '# \0')
check('migrate', schema, dumped)
CONTENTS.each { |id, value| Document.create!(id: id, content: value) }
Document.create!(id: LAST + 1, content: nil)
check('insert and read', read, CONTENTS)
check('NULL', Document.find(LAST + 1).content, nil)
CONTENTS.each do |id, value|
  Document.find(id).update!(content: "#{value}\\".b)
  document = Document.find(id)
  document.content = document.content[0..-2]
  document.save!
end
check('update', read, CONTENTS)
check('=', CONTENTS.values.map { |value| Document.where(content: value).pluck(:id) }, CONTENTS.keys.map { |id| [id] })
check('IN', Document.where(content: [CONTENTS[1], CONTENTS[LAST], 'none'.b]).pluck(:id).sort, [1, LAST])
check('ORDER BY', Document.order(:content).pluck(:id), [*CONTENTS.keys, LAST + 1])
Document.insert_all([{ id: LAST + 2, content: CONTENTS[LAST] }])
check('count distinct', Document.distinct.count(:content), LAST)
check('reflect', [Document.type_for_attribute('content').type, Document.columns_hash['content'].type], %i[blobstate blobstate])
