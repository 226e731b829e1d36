# Active Record: a model that declares the column stores and reads bytes; one that does not stores text.
#
# Exit status 3 where a library is missing.  The second part is the warning of docs/drivers.md: if it
# fails, the warning is no longer true.
begin
  require 'active_record'
  require 'pg'
rescue LoadError => error
  warn error.message
  exit 3
end

ActiveRecord::Base.establish_connection(
  adapter: 'postgresql', host: ENV.fetch('PGHOST'), port: ENV.fetch('PGPORT'),
  username: ENV.fetch('PGUSER'), database: ENV.fetch('PGDATABASE')
)
CONNECTION = ActiveRecord::Base.connection
CONNECTION.execute('CREATE TABLE rails_document (id serial PRIMARY KEY, name text, content blobstate)')

class Document < ActiveRecord::Base
  self.table_name = 'rails_document'
  attribute :content, :binary
end

class Undeclared < ActiveRecord::Base
  self.table_name = 'rails_document'
end

$failures = 0

def check(what, holds)
  return if holds

  puts "not ok - Active Record #{ActiveRecord.version}: #{what}"
  $failures += 1
end

# What the server has, by a way that no type of Active Record touches.
def stored(id)
  hex = CONNECTION.select_value("SELECT encode(content::bytea, 'hex') FROM rails_document WHERE id = #{id}")
  hex && [hex].pack('H*')
end

every_byte = (0..255).to_a.pack('C*')
[''.b, "a\\134b".b, "\\x00".b, every_byte, Random.bytes(5000), Random.bytes(10_000_000)].each do |bytes|
  size = bytes.bytesize
  document = Document.create!(name: 'one', content: bytes)
  check("#{size} bytes are stored", stored(document.id) == bytes)
  check("#{size} bytes are read", Document.find(document.id).content == bytes)
  check("#{size} bytes are found", Document.where(content: bytes).pluck(:id) == [document.id])
  check("#{size} bytes are found in a list", Document.where(content: [bytes, 'no'.b]).pluck(:id) == [document.id])
  check("#{size} bytes are plucked", Document.where(id: document.id).pluck(:content) == [bytes])
  document.update!(content: "#{bytes}\x00".b)
  check("#{size} bytes are updated", stored(document.id) == "#{bytes}\x00".b)
  again = Document.find(document.id)
  again.name = 'other'
  check("a new name of #{size} bytes changes the name alone", again.changes.keys == ['name'])
  again.save!
  check("#{size} bytes stay with a new name", stored(document.id) == "#{bytes}\x00".b)
end
many = Document.insert_all([{ name: 'many', content: every_byte }, { name: 'many', content: "\\".b }])
check('bytes of insert_all are stored', many.rows.flatten.map { |id| stored(id) } == [every_byte, "\\".b])
check('nil is NULL', Document.create!(content: nil).reload.content.nil?)

# The warning.
wrong = Undeclared.create!(content: "a\\134b")
check('without the declaration escapes are read in text, as the document warns', stored(wrong.id) == 'a\\b'.b)
check('without the declaration a value is hex text, as the document warns',
      Undeclared.find(wrong.id).content == '\\x615c62')

exit($failures.zero? ? 0 : 1)
