# config/initializers/blobstate.rb: columns of blobstate are binary attributes, migrations have
# t.blobstate, and schema.rb has such tables.
require 'active_record/connection_adapters/postgresql_adapter'

module Blobstate
  PostgreSQL = ActiveRecord::ConnectionAdapters::PostgreSQL

  class Type < PostgreSQL::OID::Bytea
    def type = :blobstate
  end

  def initialize_type_map(map = type_map)
    super
    map.register_type 'blobstate', Type.new
  end

  ActiveRecord::ConnectionAdapters::PostgreSQLAdapter.prepend self
  ActiveRecord::ConnectionAdapters::PostgreSQLAdapter::NATIVE_DATABASE_TYPES[:blobstate] = { name: 'blobstate' }
  [PostgreSQL::TableDefinition, PostgreSQL::Table].each { |table| table.send(:define_column_methods, :blobstate) }
  ActiveRecord::SchemaDumper.ignore_tables << 'blobext_map'
end
